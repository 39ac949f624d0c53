"""What remote clients cost `acp-conductor serve`: memory of an idle one, CPU per message.

    python -m tests.benchmarks.many_clients [--idle 1000] [--busy 100] [--messages 200]

Every client is a WebSocket with a chain of its own, whose agent is in the server's process. Idle
ones are initialized and have a session. Busy ones have a turn at the same time, of so many small
updates each; the CPU is the server's, with the agents that are in its process.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

import psutil
import trio
import trio_websocket
from support.raw_json import compact

CHAIN = "version: 1\nagent: {use: test-agent}\n"
_AT_ONCE = 50
"""How many connect at a time."""


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--idle", type=int, default=1000)
    parser.add_argument("--busy", type=int, default=100)
    parser.add_argument("--messages", type=int, default=200, help="of each busy client")
    arguments = parser.parse_args()
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    with server() as (url, process):
        trio.run(measure, url, process, arguments.idle, arguments.busy, arguments.messages)


@contextmanager
def server() -> Iterator[tuple[str, psutil.Process]]:
    """A server of the test agent, in a process of its own."""
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "chain.yaml"
        path.write_text(CHAIN)
        options = ["--listen", "127.0.0.1:0", "--max-clients", "100000"]
        command = [sys.executable, "-m", "conductor", "--log", "error", "serve", str(path)]
        popen = subprocess.Popen(
            [*command, *options, "--max-clients-each", "100000"], stderr=subprocess.PIPE, text=True
        )
        assert popen.stderr is not None
        try:
            url = popen.stderr.readline().split()[-1].replace("http", "ws", 1)
            yield url, psutil.Process(popen.pid)
        finally:
            popen.terminate()
            with suppress(subprocess.TimeoutExpired):
                popen.wait(30)
            popen.kill()
            popen.communicate()


async def measure(url: str, process: psutil.Process, idle: int, busy: int, messages: int) -> None:
    async with trio.open_nursery() as nursery:
        warm = await connect(url, nursery)
        await turn(warm, 10)
        base, began, cpu = memory(process), trio.current_time(), cpu_of(process)
        clients: list[Client] = []
        slots = trio.Semaphore(_AT_ONCE)
        async with trio.open_nursery() as connecting:
            for _ in range(idle):
                connecting.start_soon(partial(join, url, nursery, clients, slots))
        spent = trio.current_time() - began
        grown = memory(process) - base
        each, used = grown / idle / 1024, (cpu_of(process) - cpu) / idle
        print(f"{idle} idle clients: {each:.0f} KiB each, {base / 2**20:.0f} MiB base")
        print(f"  connected in {spent:.1f} s, {used * 1e3:.2f} ms of CPU each")
        cpu, began = cpu_of(process), trio.current_time()
        await trio.sleep(10)
        print(f"  idle: {(cpu_of(process) - cpu) / (trio.current_time() - began):.1%} of a CPU")
        cpu, began = cpu_of(process), trio.current_time()
        async with trio.open_nursery() as turns:
            for client in clients[:busy]:
                turns.start_soon(turn, client, messages)
        count, spent = busy * messages, trio.current_time() - began
        used = cpu_of(process) - cpu
        print(
            f"{busy} busy clients: {used / count * 1e6:.0f} us of CPU per message, "
            f"{count / spent:.0f} messages/s (client in Python on the same machine)"
        )
        print(f"  {memory(process) / 2**20:.0f} MiB afterwards")
        nursery.cancel_scope.cancel()


Client = tuple[trio_websocket.WebSocketConnection, str]


async def join(
    url: str, nursery: trio.Nursery, clients: list[Client], slots: trio.Semaphore
) -> None:
    async with slots:
        clients.append(await connect(url, nursery))


async def connect(url: str, nursery: trio.Nursery) -> Client:
    """An initialized client, and its session."""
    socket = await trio_websocket.connect_websocket_url(nursery, url)
    params: dict[str, Any] = {"protocolVersion": 1, "clientCapabilities": {}}
    await ask(socket, 0, "initialize", params)
    result = await ask(socket, 1, "session/new", {"cwd": "/", "mcpServers": []})
    await socket.get_message()  # the commands of the session
    return socket, result["sessionId"]


async def turn(client: Client, messages: int) -> None:
    socket, session = client
    prompt = [{"type": "text", "text": f"stream {messages} 16"}]
    await ask(socket, 2, "session/prompt", {"sessionId": session, "prompt": prompt})


async def ask(
    socket: trio_websocket.WebSocketConnection, id: int, method: str, params: dict[str, Any]
) -> Any:
    message = {"jsonrpc": "2.0", "id": id, "method": method, "params": params}
    await socket.send_message(compact(message))
    while True:
        text = await socket.get_message()
        if '"result"' in text:
            return json.loads(text)["result"]


def memory(process: psutil.Process) -> int:
    return int(process.memory_info().rss)


def cpu_of(process: psutil.Process) -> float:
    times = process.cpu_times()
    return float(times.user + times.system)


if __name__ == "__main__":
    main()
