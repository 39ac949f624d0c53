"""Connections of other local users to the bridge's port, which have no token."""

from __future__ import annotations

import base64
import errno
import gc
import socket
from contextlib import asynccontextmanager

import httpx2
import pytest
import trio
from support.bridge_harness import situation
from support.mcp_http_client import ACCEPT, HELLO, HTTP, message, web_client
from support.no_authorities import NO_AUTHORITIES

from bridges import http_listener
from conductor.proxy import RequestError

# httpx2 leaves its response generators to the garbage collector when a stream is given up.
pytestmark = pytest.mark.filterwarnings("ignore:Async generator:ResourceWarning")


@pytest.fixture(autouse=True)
def _garbage():
    yield
    gc.collect()


PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\4\0\0\0\0\0"
"""With an empty SETTINGS frame."""
MOST = http_listener._MAX_UNAUTHENTICATED


@asynccontextmanager
async def bridged():
    with trio.fail_after(100):
        async with situation(capabilities=HTTP, mode="http") as on:
            [entry] = await on.declare()
            yield on, entry


def port_of(entry) -> int:
    return httpx2.URL(entry["url"]).port


async def connect(entry, sent=b"") -> trio.SocketStream:
    stream = await trio.open_tcp_stream("127.0.0.1", port_of(entry))
    await stream.send_all(sent)
    return stream


async def rest_of(stream) -> bytes:
    """What is received until the connection is closed."""
    received = b""
    try:
        while data := await stream.receive_some():
            received += data
    except trio.BrokenResourceError:
        pass
    await stream.aclose()
    return received


def request_without_token(entry) -> bytes:
    return b"GET /mcp/x HTTP/1.1\r\nHost: 127.0.0.1:%d\r\n\r\n" % port_of(entry)


@pytest.mark.parametrize("sent", [b"", b"GET / HT", PREFACE, b"PRI * HTTP/2.0\r\n\r\n"])
async def test_a_connection_without_a_token_is_closed(sent, mock_clock):
    async with bridged() as (on, entry):
        listener = on.bridge._rewriter.http._listener
        stream = await connect(entry, sent)
        await on.until(lambda: listener._open)
        await trio.testing.wait_all_tasks_blocked()
        mock_clock.jump(4.9)
        await trio.testing.wait_all_tasks_blocked()
        assert listener._open
        mock_clock.jump(0.2)
        await rest_of(stream)
        await on.until(lambda: not listener._open)


async def test_a_connection_with_refused_requests_is_closed(mock_clock):
    """Each of them would begin hypercorn's idle timeout again."""
    async with bridged() as (_, entry):
        stream = await connect(entry)
        for _ in range(3):
            await stream.send_all(request_without_token(entry))
            answer = b""
            while not answer.endswith(b"\r\n0\r\n\r\n"):
                answer += await stream.receive_some()
            assert answer.startswith(b"HTTP/1.1 401")
            mock_clock.jump(2)
        assert await rest_of(stream) == b""


async def test_a_connection_that_reads_no_refusal_is_closed():
    """hypercorn shields its writes from cancellation."""
    async with bridged() as (on, entry):
        listener = on.bridge._rewriter.http._listener
        stream = await connect(entry)
        with trio.move_on_after(0.5):
            # After 1000 requests hypercorn would close the connection by itself.
            await stream.send_all(request_without_token(entry) * 900)
            await trio.sleep_forever()
        [connection] = listener._open
        listener._refuse(connection, "no token")
        await on.until(lambda: not listener._open)
        await stream.aclose()


@pytest.mark.parametrize("sent", [b"", PREFACE])
async def test_connections_without_a_token_are_limited_and_do_not_displace_clients(sent):
    async with bridged() as (on, entry):
        listener = on.bridge._rewriter.http._listener
        async with web_client(entry, **ACCEPT) as web:
            hello = await web.post(entry["url"], json=message("initialize", HELLO))
            used = {"Mcp-Session-Id": hello.headers["mcp-session-id"]}
            async with web.stream("GET", entry["url"], headers=used):
                others = [await connect(entry, sent) for _ in range(3 * MOST)]
                for stream in others[: 2 * MOST]:  # at once, not after the timeout
                    with trio.fail_after(2):
                        await rest_of(stream)
                assert len(listener._unauthenticated) == MOST
                assert len(listener._open) == MOST + 1
                async with web_client(entry, **ACCEPT) as new:
                    answers = [
                        await one.post(entry["url"], json=message("ping", {}, 2), headers=used)
                        for one in (web, new)
                    ]
                    assert [one.status_code for one in answers] == [200, 200]
        for stream in others:
            await stream.aclose()


@pytest.mark.parametrize("http2", [False, True])
async def test_a_client_that_has_shown_its_token_stays_connected(http2, mock_clock):
    async with bridged() as (on, entry):
        listener = on.bridge._rewriter.http._listener
        headers = {one["name"]: one["value"] for one in entry["headers"]} | ACCEPT
        async with httpx2.AsyncClient(
            headers=headers,
            trust_env=False,
            verify=NO_AUTHORITIES,
            http1=not http2,
            http2=http2,
        ) as web:
            hello = await web.post(entry["url"], json=message("initialize", HELLO))
            used = {"Mcp-Session-Id": hello.headers["mcp-session-id"]}
            assert hello.http_version == ("HTTP/2" if http2 else "HTTP/1.1")
            async with web.stream("GET", entry["url"], headers=used) as stream:
                assert stream.status_code == 200
                [connection, *_] = listener._open
                mock_clock.jump(60)
                await trio.testing.wait_all_tasks_blocked()
                assert connection in listener._open


async def test_a_websocket_is_refused():
    async with bridged() as (_, entry):
        key = base64.b64encode(b"x" * 16)
        authorization = entry["headers"][0]["value"].encode()
        upgrade = (
            b"GET /mcp HTTP/1.1\r\nHost: 127.0.0.1:%d\r\nUpgrade: websocket\r\n"
            b"Connection: Upgrade\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: %b\r\n"
            b"Authorization: %b\r\n\r\n" % (port_of(entry), key, authorization)
        )
        stream = await connect(entry, upgrade)
        assert (await stream.receive_some()).startswith(b"HTTP/1.1 403")
        await stream.aclose()


async def test_sessions_that_are_set_up_at_once_share_the_port():
    ports = []
    async with situation(capabilities=HTTP, mode="http") as on, trio.open_nursery() as nursery:

        async def declare():
            ports.extend(port_of(entry) for entry in await on.declare())

        nursery.start_soon(declare)
        nursery.start_soon(declare)
    assert len(ports) == 2
    assert len(set(ports)) == 1


async def test_a_port_that_cannot_be_opened_is_the_error_of_the_session(monkeypatch):
    def create_server(*args, **options):
        raise OSError(errno.EMFILE, "Too many open files")

    with trio.fail_after(10):
        async with situation(capabilities=HTTP, mode="http") as on:
            with monkeypatch.context() as patch:
                patch.setattr(socket, "create_server", create_server)
                with pytest.raises(RequestError, match=r"MCP server 'tools'.*Too many open files"):
                    await on.declare()
            await on.declare()
