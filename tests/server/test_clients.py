"""A chain that crashes: its client is told, on a Unix socket, a WebSocket and over HTTP. A client
is not ended for time in which the server did not read."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, NoReturn, TypeAlias

import pytest
import trio
import trio.testing
import trio_websocket
from support.raw_json import compact, dumps
from support.server_clients import http, initialize, serving, websocket

from conductor.chain.chain import Chain
from conductor.chain.components import ChainSpec
from conductor.server.listen.address import TcpAddress, UnixAddress
from conductor.server.run import RunningServer

Stream: TypeAlias = Callable[[], Awaitable[int]]


def crash() -> NoReturn:
    raise RuntimeError("a mistake in the conductor")


@pytest.fixture
async def server(tmp_path):
    """A server on a port and a Unix socket whose chains crash when they start."""
    listen = (TcpAddress("127.0.0.1", 0), UnixAddress(str(tmp_path / "s")))
    async with serving(tmp_path, listen=listen) as server:

        def make_crashing(transport: Any) -> Chain:
            return Chain(transport, ChainSpec(crash))

        server.clients.make_chain = make_crashing
        yield server


async def test_a_client_on_a_unix_socket_is_disconnected(server: RunningServer, tmp_path):
    async with await trio.open_unix_socket(str(tmp_path / "s")) as stream:
        await stream.send_all(dumps(initialize()) + b"\n")

        assert await stream.receive_some() == b""


async def test_a_websocket_is_closed(server: RunningServer):
    async with websocket(server) as socket:
        await socket.send_message(compact(initialize()))
        with pytest.raises(trio_websocket.ConnectionClosed) as closed:
            await socket.get_message()

    assert closed.value.reason.code == 1011


async def test_an_http_client_gets_an_error(server: RunningServer):
    async with http(server) as client:
        response = await client.post("/acp", json=initialize())

    assert response.status_code == 500


KEEP = 4.0
"""Seconds for which a detached client is kept, on a virtual clock."""


async def pass_time(clock: trio.testing.MockClock, seconds: float) -> None:
    """In steps, so that the server checks its clients meanwhile."""
    for _ in range(20):
        clock.jump(seconds / 20)
        await trio.testing.wait_all_tasks_blocked()


@asynccontextmanager
async def opened_over_http(tmp_path: Path) -> AsyncIterator[tuple[RunningServer, Stream]]:
    """A server, and what opens the first stream of a client that has only initialized."""
    async with (
        serving(tmp_path, timeouts={"keep": KEEP}) as server,
        http(server) as client,
        http(server) as other,
    ):
        await other.get("/health")  # makes its TLS context, which takes long
        opened = await client.post("/acp", json=initialize())
        headers = {
            "accept": "text/event-stream",
            "acp-connection-id": opened.headers["acp-connection-id"],
        }

        async def stream_status() -> int:
            async with other.stream("GET", "/acp", headers=headers) as response:
                status: int = response.status_code
                return status

        yield server, stream_status


async def test_a_client_is_kept_while_the_event_loop_is_blocked(tmp_path, mock_clock):
    async with opened_over_http(tmp_path) as (_, stream_status):
        mock_clock.jump(2 * KEEP)  # before any task runs again

        assert await stream_status() == 200
