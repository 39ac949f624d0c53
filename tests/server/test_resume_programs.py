"""`acp-conductor connect` and `acp-conductor serve` over a network that cuts connections."""

from __future__ import annotations

import json
import random
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import trio
from support.raw_json import dumps
from support.server_clients import CHAIN, PATIENCE, initialize, new_session, prompt, texts
from support.tcp_relay import Relay, relaying

from conductor.background_tasks import background_tasks

pytestmark = pytest.mark.slow

CONDUCTOR = [sys.executable, "-m", "conductor"]
SAYS = 3000


@asynccontextmanager
async def served(directory: Path, *options: str) -> AsyncIterator[str]:
    """`serve`, and the URL that it says."""
    file = directory / "chain.yaml"
    file.write_text(CHAIN)
    command = [*CONDUCTOR, "serve", str(file), "--listen", "127.0.0.1:0", *options]
    async with background_tasks() as nursery:
        process = await nursery.start(_run, command)
        said = b""
        while not said.endswith(b"\n"):
            said += await process.stderr.receive_some()
        nursery.start_soon(_drain, process.stderr)
        yield said.split()[-1].decode()
        process.terminate()
        await process.wait()


async def _run(command: list[str], task_status: trio.TaskStatus[trio.Process]) -> None:
    await trio.run_process(
        command, stderr=subprocess.PIPE, stdin=subprocess.PIPE, check=False, task_status=task_status
    )


async def _drain(stream: trio.abc.ReceiveStream) -> None:
    async for _ in stream:
        pass


@asynccontextmanager
async def connected(relay: Relay, *options: str) -> AsyncIterator[trio.Process]:
    url = f"ws://127.0.0.1:{relay.port}"
    process = await trio.lowlevel.open_process(
        [*CONDUCTOR, "connect", url, *options], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    try:
        yield process
    finally:
        process.kill()
        await process.wait()
        assert process.stdin is not None
        assert process.stdout is not None
        await process.stdin.aclose()
        await process.stdout.aclose()


async def say(process: trio.Process, *messages: Any) -> None:
    assert process.stdin is not None
    await process.stdin.send_all(b"".join(dumps(each) + b"\n" for each in messages))


async def hear(process: trio.Process, last_id: int) -> list[Any]:
    """Everything up to the answer with this id."""
    assert process.stdout is not None
    record_activity = b""
    while True:
        chunk = await process.stdout.receive_some()
        assert chunk, record_activity[-500:]
        record_activity += chunk
        if b'"id":%d,' % last_id in chunk + record_activity[-100:] and record_activity.endswith(
            b"\n"
        ):
            messages = [json.loads(line) for line in record_activity.splitlines()]
            if any(message.get("id") == last_id for message in messages):
                return messages


@pytest.mark.parametrize("how", ["reset", "pulled"])
async def test_a_connection_loss_is_invisible_to_the_editor(tmp_path, how):
    rng = random.Random(7)
    quick = ["--ping-interval", "0.3", "--ping-timeout", "0.3"]
    with trio.fail_after(3 * PATIENCE):
        async with (
            served(tmp_path, *quick) as url,
            relaying(url) as relay,
            connected(relay, "--ping-timeout", "0.6") as editor,
            background_tasks() as nursery,
        ):
            await say(editor, initialize(0), new_session(1))
            (*_, created) = [each for each in await hear(editor, 1) if each.get("id") == 1]
            session = created["result"]["sessionId"]
            nursery.start_soon(_lose, relay, how, rng)
            turn = "\n".join(f"say {number}" for number in range(SAYS))
            await say(editor, prompt(2, session, turn))
            record_activity = await hear(editor, 2)
            assert editor.stdin is not None
            await editor.stdin.aclose()
            status = await editor.wait()

    assert list(texts(record_activity)) == [str(number) for number in range(SAYS)]
    assert record_activity[-1]["result"] == {"stopReason": "end_turn"}
    assert relay.connections > 2
    assert status == 0


async def _lose(relay: Relay, how: str, rng: random.Random) -> None:
    for _ in range(4):
        await relay.wait(passed=relay.passed + rng.randrange(10_000, 60_000))
        if how == "reset":
            relay.cut()
        else:
            relay.stop()
            await relay.wait(connections=relay.connections + 1)
            relay.start()
