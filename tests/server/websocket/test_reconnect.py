"""Reconnection of clients that are not conductors, over WebSockets on real sockets."""

from __future__ import annotations

import json
from typing import Any

import pytest
import trio_websocket
from support.raw_json import compact
from support.server_clients import (
    ask,
    initialize,
    new_session,
    prompt,
    refusal,
    request,
    serving,
    texts,
    websocket,
)

from conductor.server.clients import RemoteClient

Socket = trio_websocket.WebSocketConnection


async def open_session(socket: Socket) -> str:
    await ask(socket, initialize())
    session: str = (await ask(socket, new_session(1)))["result"]["sessionId"]
    await socket.get_message()  # the commands that there are
    return session


async def next_messages(socket: Socket, count: int) -> list[Any]:
    return [json.loads(await socket.get_message()) for _ in range(count)]


async def lose(socket: Socket, client: RemoteClient) -> None:
    await socket._stream.aclose()
    await client.detached.wait()


def resume(session: str) -> dict[str, Any]:
    return request(1, "session/resume", sessionId=session, cwd="/", mcpServers=[])


BY = pytest.mark.parametrize("name", ["acp-connection-id", "cookie"])


def identity(name: str, client: RemoteClient) -> tuple[str, str]:
    return name, f"acp_connection={client.id}" if name == "cookie" else client.id


@BY
async def test_a_reconnected_client_gets_its_running_turn(tmp_path, name):
    async with serving(tmp_path) as server:
        async with websocket(server) as first:
            session = await open_session(first)
            (client,) = server.clients.by_id.values()
            await first.send_message(compact(prompt(2, session, "say one\nask\nsay two")))
            said, _tool, question = await next_messages(first, 3)
            await lose(first, client)
        async with websocket(server, identity(name, client)) as second:
            told = dict(second.handshake_headers)[b"acp-connection-id"].decode()
            initialized = await ask(second, initialize())
            resumed = await ask(second, resume(session))
            (again,) = await next_messages(second, 1)
            chosen = {"outcome": {"outcome": "selected", "optionId": "allow"}}
            await second.send_message(
                compact({"jsonrpc": "2.0", "id": again["id"], "result": chosen})
            )
            more = await next_messages(second, 3)

        assert told == client.id
        assert initialized["result"]["agentInfo"]["name"] == "test-agent"
        assert list(texts([said])) == ["one"]
        assert again["params"] == question["params"]
        assert "modes" in resumed["result"]
        assert list(texts(more))[-1] == "two"


async def test_a_session_is_loaded_in_the_detached_chain(tmp_path):
    async with serving(tmp_path) as server:
        async with websocket(server) as first:
            session = await open_session(first)
            (client,) = server.clients.by_id.values()
            await ask(first, prompt(2, session, "say one"))
            await lose(first, client)
        async with websocket(server, ("acp-connection-id", client.id)) as second:
            await ask(second, initialize())
            load = request(1, "session/load", sessionId=session, cwd="/", mcpServers=[])
            await second.send_message(compact(load))
            told = await next_messages(second, 3)

        assert list(texts(told)) == ["one"]
        assert told[2]["id"] == 1
        assert len(server.clients.by_id) == 1


async def test_the_connection_id_replaces_a_socket_not_yet_detected_as_lost(tmp_path):
    async with serving(tmp_path) as server, websocket(server) as first:
        session = await open_session(first)
        (client,) = server.clients.by_id.values()
        async with websocket(server, ("acp-connection-id", client.id)) as second:
            await ask(second, initialize())
            resumed = await ask(second, resume(session))

            assert "result" in resumed
            assert list(server.clients.by_id) == [client.id]
            with pytest.raises(trio_websocket.ConnectionClosed):
                await first.get_message()


async def test_a_cookie_alone_does_not_replace_a_live_socket(tmp_path):
    """A browser sends it with every WebSocket that it opens."""
    async with serving(tmp_path) as server, websocket(server) as first:
        await ask(first, initialize())
        (client,) = server.clients.by_id.values()
        async with websocket(server, identity("cookie", client)) as second:
            await ask(second, initialize())

            assert len(server.clients.by_id) == 2
            assert (await ask(first, request(1, "session/list")))["id"] == 1


async def test_a_client_that_reconnects_too_late_gets_a_new_chain(tmp_path):
    async with serving(tmp_path, timeouts={"keep": 0.2}) as server:
        async with websocket(server) as first:
            session = await open_session(first)
            (client,) = server.clients.by_id.values()
            await lose(first, client)
        await client.ended.wait()
        async with websocket(server, ("acp-connection-id", client.id)) as second:
            await ask(second, initialize())
            resumed = await ask(second, resume(session))

        assert resumed["error"]["message"] == "Resource not found"


async def test_a_client_that_was_never_initialized_is_not_kept(tmp_path):
    async with serving(tmp_path) as server:
        async with websocket(server) as first:
            (client,) = server.clients.by_id.values()
            await lose(first, client)
        await client.ended.wait()

        assert server.clients.by_id == {}


async def test_a_draining_server_reattaches_no_client(tmp_path):
    async with serving(tmp_path) as server:
        async with websocket(server) as first:
            session = await open_session(first)
            (client,) = server.clients.by_id.values()
            await first.send_message(compact(prompt(2, session, "say x\nwait")))
            await next_messages(first, 1)
            await lose(first, client)
        server.clients.draining = True
        refused = await refusal(server, **{"acp-connection-id": client.id})
        server.clients.kill()

        assert refused == (503, "the server is shutting down")
