"""The WebSocket client against scripted servers."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from http.cookiejar import CookieJar

import pytest
import trio
import trio.testing
import trio_websocket
from support.raw_json import compact
from support.remote_agents import reach

from conductor.errors import RequestError
from conductor.network.address import RemoteAddress
from conductor.network.tcp import Unreachable
from conductor.remote.websocket_connection import (
    cookies_for,
    open_websocket,
    send_pings,
    store_cookies,
)

Turn = Callable[[trio_websocket.WebSocketConnection, trio.SocketStream], Awaitable[None]]


@asynccontextmanager
async def serving(turn: Turn, *, cookie: bytes = b"") -> AsyncIterator[str]:
    """Answers `initialize`, then leaves the socket, and the stream below it, to `turn`."""

    async def handle(stream: trio.SocketStream) -> None:
        async with stream, trio.open_nursery() as nursery:
            request = await trio_websocket.wrap_server_stream(nursery, stream)
            kept.append(dict(request.headers))
            more = [(b"Set-Cookie", cookie), (b"Acp-Connection-Id", b"c1")]
            socket = await request.accept(extra_headers=more)
            asked = json.loads(await socket.get_message())
            await socket.send_message(answer(asked, {"protocolVersion": 1}))
            await turn(socket, stream)
            nursery.cancel_scope.cancel()

    kept: list[dict[bytes, bytes]] = []
    serving.kept = kept  # type: ignore[attr-defined]
    async with trio.open_nursery() as nursery:
        (listener,) = await trio.open_tcp_listeners(0, host="127.0.0.1")
        nursery.start_soon(trio.serve_listeners, handle, [listener])
        yield f"ws://127.0.0.1:{listener.socket.getsockname()[1]}/acp"
        nursery.cancel_scope.cancel()


def answer(asked: dict[str, object], result: object) -> str:
    return compact({"jsonrpc": "2.0", "id": asked["id"], "result": result})


async def lost(turn: Turn, **agent: object) -> str:
    """What a request is answered with, when the connection ends as `turn` says."""
    async with serving(turn) as url, reach(connect=url, on_failure="end_chain", **agent) as client:
        await client.initialize()
        with pytest.raises(RequestError) as caught:
            await client.request("_x/never", {})
    return caught.value.message.replace(url, "URL")


async def test_binary_messages_are_ignored_and_a_message_over_several_lines_is_one():
    async def turn(socket, stream):
        asked = json.loads(await socket.get_message())
        await socket.send_message(b"\x00\x01")
        pretty = json.dumps(json.loads(answer(asked, "yes")), indent=2)
        await socket.send_message(pretty)
        await trio.sleep_forever()

    async with serving(turn) as url, reach(connect=url) as client:
        await client.initialize()

        assert await client.request("_x/is it there", {}) == "yes"


@pytest.mark.parametrize(
    ("reason", "told"), [((1011, "out of memory"), " (1011, out of memory)"), ((), "")]
)
async def test_how_the_server_closes_is_told(reason, told):
    async def turn(socket, stream):
        await socket.get_message()
        await socket.aclose(*reason)

    assert await lost(turn) == f"component 'far' closed its connection at URL{told}"


async def test_a_connection_reset_is_reported():
    async def turn(socket, stream):
        await socket.get_message()
        await trio.aclose_forcefully(stream)

    assert await lost(turn) == "component 'far' lost its connection to URL: it was cut"


@pytest.mark.parametrize(
    "data",
    [b"\xff\xff\xff\xff HTTP/1.1 200 OK\r\n\r\n", b"\x81\x02\xc3\x28"],
    ids=["invalid frame", "not UTF-8"],
)
async def test_a_violation_of_the_protocol_ends_the_connection(data):
    async def turn(socket, stream):
        await socket.get_message()
        await stream.send_all(data)
        await trio.sleep_forever()

    message = await lost(turn)
    assert message.startswith("component 'far' broke the rules of WebSocket at URL (100")


async def test_a_cookie_comes_back_when_the_component_is_reached_again():
    asked = 0

    async def turn(socket, stream):
        nonlocal asked
        asked += 1
        message = json.loads(await socket.get_message())
        if asked > 1:
            await socket.send_message(answer(message, "again"))
            await trio.sleep_forever()

    async with serving(turn, cookie=b"stick=here; Path=/") as url, reach(connect=url) as client:
        await client.initialize()
        with pytest.raises(RequestError):
            await client.request("_x/first", {})

        assert await client.request("_x/second", {}) == "again"
        first, second = serving.kept  # type: ignore[attr-defined]
        assert (first.get(b"cookie"), second.get(b"cookie")) == (None, b"stick=here")


async def test_a_refusal_without_end_is_cut():
    async def refuse(stream: trio.SocketStream) -> None:
        head = b"HTTP/1.1 403 No\r\nTransfer-Encoding: chunked\r\n\r\n"
        with suppress(trio.BrokenResourceError):
            await stream.send_all(head)
            while True:
                await stream.send_all(b"1000\r\n%s\r\n" % bytes(4096))

    async with trio.open_nursery() as nursery:
        (listener,) = await trio.open_tcp_listeners(0, host="127.0.0.1")
        nursery.start_soon(trio.serve_listeners, refuse, [listener])
        url = f"ws://127.0.0.1:{listener.socket.getsockname()[1]}/"
        address = RemoteAddress.from_url(url, {})
        with trio.fail_after(5), pytest.raises(Unreachable, match="did not answer"):
            async with open_websocket(address, CookieJar(), 10, 1000):
                pass
        nursery.cancel_scope.cancel()


async def test_back_pressure_does_not_trigger_the_ping_timeout(mock_clock):
    """Its pongs wait behind unread data; `ping_timeout` passes three times meanwhile."""

    async def turn(socket, stream):
        for _ in range(10):
            await socket.send_message("x" * 1_000_000)
        await trio.sleep_forever()

    async with (
        serving(turn) as url,
        open_websocket(RemoteAddress.from_url(url, {}), CookieJar(), 0.2, 2_000_000) as socket,
        trio.open_nursery() as nursery,
    ):
        await socket.send('{"id":1}')
        nursery.start_soon(send_pings, socket, 0.2)
        for _ in range(60):
            await trio.testing.wait_all_tasks_blocked()
            mock_clock.jump(0.01)
        received = [await socket.receive() for _ in range(11)]
        nursery.cancel_scope.cancel()

    assert [text and len(text) for text in received[1:]] == [1_000_000] * 10


def test_a_secure_cookie_needs_an_encrypted_connection():
    jar = CookieJar()
    store_cookies(
        RemoteAddress.from_url("wss://example.org", {}),
        [(b"set-cookie", b"a=1; Secure; Path=/")],
        jar,
    )

    assert cookies_for(RemoteAddress.from_url("https://example.org", {}), jar) == "a=1"
    assert cookies_for(RemoteAddress.from_url("ws://example.org", {}), jar) is None
