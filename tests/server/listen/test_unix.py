"""Clients on a Unix socket. (Its mode, and what becomes of the file: test_serve_process.py.)"""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import trio
import trio.testing
from support.peers.process import agent
from support.raw_json import compact, dumps
from support.server_clients import ask, initialize, new_session, prompt, request, serving, websocket

from conductor.server.access import AccessPolicy, read_tokens
from conductor.server.listen import unix
from conductor.server.listen.address import TcpAddress, UnixAddress


async def line(stream: trio.SocketStream, message: object) -> None:
    await stream.send_all(dumps(message) + b"\n")


async def test_a_unix_client_that_disconnects_during_output_does_not_affect_others(tmp_path):
    path = str(tmp_path / "acp.sock")
    async with serving(tmp_path, listen=(UnixAddress(path),)) as server:
        for _ in range(3):
            async with await trio.open_unix_socket(path) as stream:
                await line(stream, initialize())
                await line(stream, new_session(1))
                await line(stream, prompt(2, "session-1", "stream 3000 10000"))
                assert await stream.receive_some()
        async with await trio.open_unix_socket(path) as stream:
            await line(stream, initialize(7))
            assert json.loads(await stream.receive_some())["id"] == 7
        server.clients.kill()


async def test_a_unix_client_that_closes_with_unread_messages_is_ended(tmp_path):
    path = str(tmp_path / "acp.sock")
    async with serving(tmp_path, listen=(UnixAddress(path),)) as server:
        async with await trio.open_unix_socket(path) as stream:
            await line(stream, initialize())
            await trio.lowlevel.wait_readable(stream.socket)
            (client,) = server.clients.by_id.values()
        await client.ended.wait()

    assert client.ending.reason == "client"


async def test_a_unix_client_that_leaves_while_its_chain_reads_nothing_is_ended(
    tmp_path, monkeypatch
):
    monkeypatch.setattr(unix, "_GONE_CHECK_INTERVAL", 0.3)
    path = str(tmp_path / "acp.sock")
    run = compact(agent("--fault", "stop", "--at", "session/prompt"))
    chain = f"version: 1\nagent: {{run: {run}, stop_timeout: 300ms}}\n"
    listen = (UnixAddress(path),)
    async with serving(tmp_path, chain=chain, listen=listen) as server:
        async with await trio.open_unix_socket(path) as stream, trio.open_nursery() as nursery:
            await line(stream, initialize())
            await stream.receive_some()
            (client,) = server.clients.by_id.values()
            await line(stream, new_session(1))
            session = json.loads(await stream.receive_some())["result"]["sessionId"]
            large = [prompt(2 + number, session, "x" * 100_000) for number in range(100)]
            nursery.start_soon(send_all, stream, large)
            await trio.testing.wait_all_tasks_blocked(0.1)
            nursery.cancel_scope.cancel()
        await client.ended.wait()

    assert client.ending.reason in ("client", "stopped")


async def send_all(stream: trio.SocketStream, messages: list[object]) -> None:
    for message in messages:
        await line(stream, message)


async def test_a_half_closed_unix_client_gets_its_responses(tmp_path):
    path = str(tmp_path / "acp.sock")
    async with (
        serving(tmp_path, listen=(UnixAddress(path),)),
        await trio.open_unix_socket(path) as stream,
    ):
        await line(stream, initialize())
        await line(stream, new_session(1))
        await stream.send_eof()
        answers = [json.loads(each) for each in b"".join([c async for c in stream]).splitlines()]

    assert [each["id"] for each in answers if "id" in each] == [0, 1]


@pytest.mark.parametrize("size", [1000, 100_000])
async def test_an_overlong_line_is_refused_and_dropped(tmp_path, size):
    path = str(tmp_path / "acp.sock")
    limits = {"message_bytes": 500}
    async with (
        serving(tmp_path, listen=(UnixAddress(path),), limits=limits),
        await trio.open_unix_socket(path) as stream,
    ):
        await line(stream, "x" * size)
        assert "error" in json.loads(await stream.receive_some())
        await line(stream, initialize())
        assert json.loads(await stream.receive_some())["id"] == 0


async def test_a_unix_client_and_a_device_with_a_token_share_their_sessions(tmp_path):
    path, token = str(tmp_path / "acp.sock"), "a" * 32
    agent = Path(__file__).parents[2] / "support" / "components" / "durable_agent.py"
    (tmp_path / "kept").mkdir()
    agent_spec = f"{{use: {agent}:KeepingAgent, with: {{directory: {tmp_path}/kept, node: a}}}}"
    listen = (TcpAddress("127.0.0.1", 0), UnixAddress(path))
    access = AccessPolicy(tokens=read_tokens([f"ann:{token}"]))
    async with (
        serving(
            tmp_path, chain=f"version: 1\nagent: {agent_spec}\n", listen=listen, access=access
        ) as server,
        await trio.open_unix_socket(path) as local,
        websocket(server, ("authorization", f"Bearer {token}")) as ann,
    ):
        await line(local, initialize())
        assert json.loads(await local.receive_some())["id"] == 0
        await line(local, new_session(1))
        session = json.loads(await local.receive_some())["result"]["sessionId"]
        await ask(ann, initialize())
        loaded = await ask(
            ann, request(2, "session/load", sessionId=session, cwd="/", mcpServers=[])
        )

    assert "result" in loaded
