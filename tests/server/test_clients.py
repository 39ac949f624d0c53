"""A chain that crashes: its client is told, on a Unix socket, a WebSocket and over HTTP."""

from __future__ import annotations

import json
from typing import Any, NoReturn

import pytest
import trio
import trio_websocket
from support.server_clients import http, initialize, serving, websocket

from conductor.chain.chain import Chain
from conductor.server.listen.address import TcpAddress, UnixAddress
from conductor.server.run import RunningServer


def crash() -> NoReturn:
    raise RuntimeError("a mistake in the conductor")


@pytest.fixture
async def server(tmp_path):
    """A server on a port and a Unix socket whose chains crash when they start."""
    listen = (TcpAddress("127.0.0.1", 0), UnixAddress(str(tmp_path / "s")))
    async with serving(tmp_path, listen=listen) as server:
        make = server.clients.make_chain

        def make_crashing(transport: Any) -> Chain:
            chain = make(transport)
            chain.make = crash
            return chain

        server.clients.make_chain = make_crashing
        yield server


async def test_a_client_on_a_unix_socket_is_disconnected(server: RunningServer, tmp_path):
    async with await trio.open_unix_socket(str(tmp_path / "s")) as stream:
        await stream.send_all(json.dumps(initialize()).encode() + b"\n")

        assert await stream.receive_some() == b""


async def test_a_websocket_is_closed(server: RunningServer):
    async with websocket(server) as socket:
        await socket.send_message(json.dumps(initialize()))
        with pytest.raises(trio_websocket.ConnectionClosed) as closed:
            await socket.get_message()

    assert closed.value.reason.code == 1011


async def test_an_http_client_gets_an_error(server: RunningServer):
    async with http(server) as client:
        response = await client.post("/acp", json=initialize())

    assert response.status_code == 500
