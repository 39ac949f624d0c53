"""The HTTP of `--metrics`, over real sockets."""

from __future__ import annotations

from contextlib import asynccontextmanager, suppress

import pytest
import trio
from prometheus_client.exposition import choose_encoder

from conductor.server.listen.address import TcpAddress, bind_tcp
from conductor.server.metrics.exposition import MetricsListener


def text(accept):
    return "text/x; charset=utf-8", f"accept {accept}\n".encode()


@asynccontextmanager
async def listening(text=text):
    (listener,) = await bind_tcp(TcpAddress("127.0.0.1", 0))
    async with trio.open_nursery() as nursery:
        nursery.start_soon(MetricsListener(text).serve, listener)
        yield listener.socket.getsockname()[1]
        nursery.cancel_scope.cancel()


async def exchange(port, request):
    """The response to raw bytes, until the connection is closed."""
    stream = await trio.open_tcp_stream("127.0.0.1", port)
    async with stream:
        await stream.send_all(request)
        with trio.fail_after(30):
            return b"".join([chunk async for chunk in stream])


@pytest.mark.parametrize(
    ("request_line", "status", "body"),
    [
        (b"GET /healthz", b"200", b"ok\n"),
        (b"HEAD /healthz", b"200", b""),
        (b"GET /metrics?x=1", b"200", b"accept text/y\n"),
        (b"GET /", b"404", b"there are /metrics and /healthz\n"),
        (b"POST /metrics", b"405", b"only GET\n"),
    ],
)
async def test_two_paths_are_answered(request_line, status, body):
    async with listening() as port:
        head = request_line + b" HTTP/1.1\r\nHost: x\r\nAccept: text/y\r\n\r\n"
        response = await exchange(port, head)

    assert response.startswith(b"HTTP/1.1 " + status)
    assert response.partition(b"\r\n\r\n")[2] == body


@pytest.mark.parametrize("request_", [b"nonsense\r\n\r\n", b"GET / HTTP/1.1\r\nx: " + b"x" * 40000])
async def test_what_is_no_request_ends_the_connection_only(request_):
    async with listening() as port:
        with suppress(trio.BrokenResourceError):  # the rest was not read
            assert await exchange(port, request_) == b""
        assert b"ok" in await exchange(port, b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n")


async def test_an_accept_header_that_cannot_be_read_ends_one_request_only():
    """With this one, `prometheus_client` compares a text with a number."""
    accept = "application/openmetrics-text;version=1.0.0x.5"
    request = f"GET /metrics HTTP/1.1\r\nHost: x\r\nAccept: {accept}\r\n\r\n"
    async with listening(lambda accept: (choose_encoder(accept)[1], b"")) as port:
        response = await exchange(port, request.encode())
        assert response.startswith(b"HTTP/1.1 500 ")
        assert response.endswith(b"\r\n\r\nthe log of the server has the error\n")
        assert b"ok" in await exchange(port, b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n")
