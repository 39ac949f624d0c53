"""A WebSocket to a server: handshake with cookies, keep-alive by pings, close.

A silent peer is sent a ping, and the connection is lost if no pong comes in time; a connection cut
without a FIN would otherwise never end. The time does not count while the socket is not being read
here or a write is blocked: then no pong can arrive.

Cookies of a component are kept across its connections: session affinity. ACP requires cookie
support of clients on every transport (RFD streamable HTTP and WebSocket, 5). The scope rules are
those of `http.cookiejar`, which accepts only `urllib` requests.
"""

from __future__ import annotations

import math
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from email.message import Message
from http.cookiejar import CookieJar
from typing import Final, TypeVar
from urllib.request import Request

import attrs
import trio
import trio_websocket

from conductor.network.address import RemoteAddress
from conductor.network.resumable_stream import FRAME_OVERHEAD
from conductor.network.running_time import move_on_after_running
from conductor.network.tcp import Unreachable, open_stream
from conductor.network.websocket import CloseHandshakeStream, WebSocket, WebSocketClosed
from conductor.remote.transport import refusal_message

__all__ = ["ClientWebSocket", "cookies_for", "open_websocket", "send_pings", "store_cookies"]

_CHUNK: Final = 65536
_MAX_HANDSHAKE: Final = 256 * 1024
"""Bytes that may come before the handshake is complete: the head, or the body of a refusal."""
_ABNORMAL_CLOSURE: Final = 1006
_CLOSE_TIMEOUT: Final = 2.0
"""Seconds for the peer's close frame."""


async def send_pings(socket: ClientWebSocket, ping_timeout: float) -> None:
    """Send a ping after half of `ping_timeout` without data; cut after the other half."""
    half = ping_timeout / 2
    asked = 0.0
    while True:
        await trio.sleep_until(max(socket.last_received, asked) + half)
        if (asked := trio.current_time()) < socket.last_received + half:
            continue
        try:
            await socket.ping(half)
        except WebSocketClosed:
            return  # handled by the receiving task


@asynccontextmanager
async def open_websocket(
    address: RemoteAddress,
    cookies: CookieJar,
    ping_timeout: float,
    max_message_bytes: int,
    more_headers: tuple[tuple[str, str], ...] = (),
) -> AsyncIterator[ClientWebSocket]:
    """Open a WebSocket; its stream is closed at the end of the block. Raises `Unreachable`."""
    headers = [*address.headers.items(), *more_headers]
    if (cookie := cookies_for(address, cookies)) is not None:
        headers.append(("Cookie", cookie))
    stream = _ActivityStream(await open_stream(address, ping_timeout))
    close_handshake = CloseHandshakeStream(stream)
    try:
        async with trio.open_nursery() as nursery:
            with stream.at_end:
                connection = await trio_websocket.wrap_client_stream(
                    nursery,
                    close_handshake,  # type: ignore[arg-type]  # accepts any stream
                    address.authority,
                    address.target,
                    extra_headers=[(name.encode(), value.encode()) for name, value in headers],
                    message_queue_size=1,
                    max_message_size=max_message_bytes + FRAME_OVERHEAD,
                    receive_buffer_size=_CHUNK,
                )
            if stream.at_end.cancelled_caught:
                hint = "" if address.is_secure else "; does it expect wss://?"
                raise Unreachable(f"did not answer at {address.display_url} as a WebSocket{hint}")
            stream.handshake_bytes = math.inf
            store_cookies(address, connection.handshake_headers, cookies)
            close_handshake.connection = connection
            yield ClientWebSocket(connection, stream, close_handshake)
            nursery.cancel_scope.cancel()
    except BaseExceptionGroup as group:
        if (rejected := _find_in_group(group, trio_websocket.ConnectionRejected)) is not None:
            status, body = rejected.status_code, bytes(rejected.body or b"")
            raise Unreachable(refusal_message(address, status, body), status) from None
        if (unreachable := _find_in_group(group, Unreachable)) is not None:
            raise unreachable from None
        raise
    finally:
        await trio.aclose_forcefully(stream)


@attrs.define(eq=False)
class _ActivityStream(trio.abc.Stream):
    """Records the times of the last bytes; cancels `at_end` at EOF: trio-websocket waits for the
    handshake response even after EOF. It keeps all of a response that refuses the handshake: EOF
    after `handshake_bytes`."""

    _stream: trio.abc.Stream
    last_received: float = attrs.field(factory=trio.current_time, init=False)
    last_sent: float = attrs.field(factory=trio.current_time, init=False)
    """Time of the last write (trio clock)."""
    at_end: trio.CancelScope = attrs.field(factory=trio.CancelScope, init=False)
    handshake_bytes: float = attrs.field(default=_MAX_HANDSHAKE, init=False)

    async def send_all(self, data: bytes | bytearray | memoryview) -> None:
        view = memoryview(data)
        for start in range(0, len(view), _CHUNK):
            await self._stream.send_all(view[start : start + _CHUNK])
            self.last_sent = trio.current_time()

    async def wait_send_all_might_not_block(self) -> None:
        await self._stream.wait_send_all_might_not_block()

    async def receive_some(self, max_bytes: int | None = None) -> bytes | bytearray:
        data: bytes | bytearray = b""
        try:
            if self.handshake_bytes > 0:
                data = await self._stream.receive_some(max_bytes)
                self.handshake_bytes -= len(data)
        finally:
            self.last_received = trio.current_time()
            if not data:
                self.at_end.cancel()
        return data

    async def aclose(self) -> None:
        await self._stream.aclose()


@attrs.define(eq=False)
class ClientWebSocket(WebSocket):
    """Client end of a WebSocket, on trio-websocket."""

    _connection: trio_websocket.WebSocketConnection
    _stream: _ActivityStream
    _close_handshake: CloseHandshakeStream
    closed: WebSocketClosed | None = attrs.field(default=None, init=False)
    """The reason for its end, once it has ended."""
    peer_always_reads: bool = attrs.field(default=False, init=False)
    """Whether the peer never stops reading, so that a blocked write means a lost connection."""
    _is_read: bool = attrs.field(default=False, init=False)
    _sending: int = attrs.field(default=0, init=False)

    @property
    def headers(self) -> dict[str, str]:
        """Headers of the handshake response, names in lower case."""
        pairs = self._connection.handshake_headers
        return {name.decode().lower(): value.decode("latin-1") for name, value in pairs}

    @property
    def last_received(self) -> float:
        """Time of the last bytes from the peer (trio clock)."""
        return self._stream.last_received

    async def receive(self) -> str | None:
        self._is_read = True
        try:
            while not isinstance(message := await self._connection.get_message(), str):
                pass
        except trio_websocket.ConnectionClosed:
            await self._close_handshake.send_close_frame()
            self._has_closed()
            return None
        finally:
            self._is_read = False
        return message

    async def send(self, text: str) -> None:
        self._sending += 1
        try:
            await self._connection.send_message(text)
        except trio_websocket.ConnectionClosed:
            raise self._has_closed() from None
        finally:
            self._sending -= 1

    async def ping(self, deadline: float) -> None:
        asked = trio.current_time()
        async with move_on_after_running(deadline):
            try:
                await self._connection.ping()
                return
            except trio_websocket.ConnectionClosed:
                raise self._has_closed() from None
        last_sent = self._stream.last_sent > asked
        if (self._sending and (last_sent or not self.peer_always_reads)) or not self._is_read:
            return
        if self.last_received > asked:
            return  # the pong may be among the bytes received
        self.closed = WebSocketClosed(
            _ABNORMAL_CLOSURE, f"it did not answer a ping within {deadline:g} s"
        )
        await self.cut()
        raise self.closed

    async def close(self, code: int = 1000, reason: str = "") -> None:
        with trio.move_on_after(_CLOSE_TIMEOUT):
            await self._connection.aclose(code, reason or None)

    async def cut(self) -> None:
        """Close the TCP connection without a close frame."""
        await trio.aclose_forcefully(self._stream)

    def end_reason(self, location: str) -> str:
        """Reason for the end, as a text that follows the component's name."""
        closed = self.closed
        if closed is None or closed.code in (1000, 1005):
            return f"closed its connection at {location}"
        if closed.code == _ABNORMAL_CLOSURE:
            return f"lost its connection to {location}: {closed.reason or 'it was cut'}"
        reason = f", {closed.reason}" if closed.reason else ""
        if self._close_handshake.violation is not None:
            return f"broke the rules of WebSocket at {location} ({closed.code}{reason})"
        return f"closed its connection at {location} ({closed.code}{reason})"

    def _has_closed(self) -> WebSocketClosed:
        if self.closed is None:
            closed = self._connection.closed
            code = _ABNORMAL_CLOSURE if closed is None else closed.code
            self.closed = WebSocketClosed(code, None if closed is None else closed.reason)
        return self.closed


def cookies_for(address: RemoteAddress, jar: CookieJar) -> str | None:
    """Value of the `Cookie` header for a request to this address, or `None`."""
    request = _request(address)
    jar.add_cookie_header(request)
    return request.get_header("Cookie")


def store_cookies(
    address: RemoteAddress, headers: Iterable[tuple[bytes, bytes]], jar: CookieJar
) -> None:
    """Store the cookies that a response from this address sets. `headers`: raw pairs."""
    jar.extract_cookies(_CookieResponse(headers), _request(address))  # type: ignore[arg-type]


def _request(address: RemoteAddress) -> Request:
    scheme = "https" if address.is_secure else "http"
    return Request(f"{scheme}://{address.authority}{address.target}")


class _CookieResponse:
    """The interface of a response that `CookieJar` reads."""

    def __init__(self, headers: Iterable[tuple[bytes, bytes]]) -> None:
        self._message = Message()
        for name, value in headers:
            self._message[name.decode("latin-1")] = value.decode("latin-1")

    def info(self) -> Message:
        return self._message


_Exc = TypeVar("_Exc", bound=BaseException)


def _find_in_group(group: BaseExceptionGroup[BaseException], kind: type[_Exc]) -> _Exc | None:
    for exc in group.exceptions:
        found = _find_in_group(exc, kind) if isinstance(exc, BaseExceptionGroup) else exc
        if isinstance(found, kind):
            return found
    return None
