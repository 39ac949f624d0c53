"""One HTTP connection, served by hypercorn, on a real socket."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import attrs
import httpx2
import pytest
import trio
import trio.testing
from hypercorn.config import Config
from support.no_authorities import NO_AUTHORITIES

from conductor.network.hypercorn_connection import serve_http

IDLE = 5.0
"""Seconds until an idle connection is closed, on a virtual clock."""
PATIENCE = 20.0
PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
GOAWAY_FRAME_SIZE = b"\0\0\x08\7\0\0\0\0\0" + b"\0\0\0\0" + b"\0\0\0\6"  # FRAME_SIZE_ERROR
SETTINGS = b"\0\0\0\4\0\0\0\0\0"


@attrs.define
class Server:
    """A server that answers late, and closes connections that are idle for `IDLE` seconds."""

    port: int = 0
    asked: trio.Event = attrs.field(factory=trio.Event)
    """Set by the next request."""

    async def answer_late(self, scope: Any, receive: Any, send: Any) -> None:
        self.asked.set()
        await trio.sleep(2 * IDLE)
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"late", "more_body": False})


@asynccontextmanager
async def open_server() -> AsyncIterator[Server]:
    server, config = Server(), Config()
    config.accesslog = config.errorlog = None
    config.keep_alive_timeout = IDLE

    async def handle(stream: trio.SocketStream) -> None:
        await serve_http(server.answer_late, config, stream)

    async with trio.open_nursery() as nursery:
        serve = partial(trio.serve_tcp, handle, 0, host="127.0.0.1")
        (listener,) = await nursery.start(serve)
        server.port = listener.socket.getsockname()[1]
        yield server
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize("begin", [b"", PREFACE, PREFACE + SETTINGS], ids=["none", "h2", "ready"])
async def test_a_connection_without_a_request_is_closed(begin, virtual_clock):
    async with (
        open_server() as server,
        await trio.open_tcp_stream("127.0.0.1", server.port) as stream,
    ):
        await stream.send_all(begin)

        with trio.fail_after(PATIENCE):
            while await stream.receive_some():
                pass


async def test_a_frame_that_is_too_large_is_refused_before_it_is_received(mock_clock):
    """The clock stands still: not because it is idle."""
    async with (
        open_server() as server,
        await trio.open_tcp_stream("127.0.0.1", server.port) as stream,
    ):
        await stream.send_all(PREFACE + SETTINGS + (2**24 - 1).to_bytes(3, "big"))

        answer = b""
        while chunk := await stream.receive_some():
            answer += chunk
    assert answer.endswith(GOAWAY_FRAME_SIZE)


@pytest.mark.parametrize("version", [1, 2])
async def test_a_request_may_take_longer_than_a_connection_may_be_idle(version, mock_clock):
    answers = []

    async def ask_twice(client: httpx2.AsyncClient, port: int) -> None:
        for _ in range(2):
            answers.append((await client.get(f"http://127.0.0.1:{port}/")).text)

    async with (
        open_server() as server,
        httpx2.AsyncClient(
            http1=version == 1, http2=version == 2, timeout=PATIENCE, verify=NO_AUTHORITIES
        ) as client,
        trio.open_nursery() as nursery,
    ):
        nursery.start_soon(ask_twice, client, server.port)
        for _ in range(2):
            await server.asked.wait()
            server.asked = trio.Event()
            for _ in range(4):
                mock_clock.jump(IDLE / 2)
                await trio.testing.wait_all_tasks_blocked()

    assert answers == ["late", "late"]
