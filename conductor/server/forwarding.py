"""Requests that came to the wrong node: passed on to the one that has their connection.

What is passed on is what came, with the client's own credentials, which the other node checks
anew. Nothing but HTTP is spoken between nodes, and `Via` (RFC 9110 §7.6.3) keeps a request from
going round. A WebSocket that the other node has taken is copied byte for byte where that can be, so
its pings, its close and its back-pressure are those of its two ends; of an exchange, the response
streams.

A node that cannot be reached, or does not take a WebSocket (because it is about to end), counts as
one that does not know the connection: the request is dealt with where it came.
"""

from __future__ import annotations

import socket as stdlib_socket
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Mapping
from contextlib import aclosing, asynccontextmanager, suppress
from http.cookies import CookieError, SimpleCookie
from typing import TYPE_CHECKING, Any, Final, TypeAlias
from urllib.parse import urlsplit

import attrs
import trio

from conductor.endpoint import background
from conductor.log import get_logger
from conductor.server.directory import Directory
from conductor.server.relaying import BROKEN, Messages, copy_bytes, copy_messages
from conductor.server.requests import CONNECTION

if TYPE_CHECKING:
    from httpx2 import AsyncHTTPTransport

    from conductor.server.peeking import Peeked

__all__ = ["COOKIE", "Forwarding", "cookie_of", "is_gone"]

COOKIE: Final = "acp_connection"
"""Holds the id of a client's connection."""
_US: Final = "acp-conductor"
_CHUNK: Final = 65536
_END: Final = b"\r\n\r\n"
_PROBE: Final = 1.0
_OF_ONE_HOP: Final = {
    *(b"connection", b"keep-alive", b"proxy-connection", b"te", b"trailer", b"transfer-encoding"),
    b"upgrade",
}
"""Headers that speak of one TCP connection (RFC 9110 §7.6.1)."""

Headers: TypeAlias = Iterable[tuple[bytes, bytes]]
_Connected: TypeAlias = "trio.SocketStream | trio.SSLStream[trio.SocketStream]"

log = get_logger(component="server")


@attrs.define(eq=False)
class Forwarding:
    """From this node to the others."""

    directory: Directory
    patience: float = 5.0
    """Seconds in which another node must let itself be connected to, and take a WebSocket."""
    silence: float = 40.0
    """Seconds after which a node whose machine does not acknowledge anything is given up."""
    _transport: AsyncHTTPTransport = attrs.field(init=False)
    _tls: ssl.SSLContext = attrs.field(factory=ssl.create_default_context, init=False)

    @asynccontextmanager
    async def open(self) -> AsyncIterator[None]:
        """Around its whole use."""
        import httpx2

        # A transport, no client: it keeps no cookies, which are not ours, and follows no redirect.
        self._transport = httpx2.AsyncHTTPTransport(
            verify=self._tls,
            http2=False,  # a stream of which nobody is told that it is not read any more
            trust_env=False,
            limits=httpx2.Limits(keepalive_expiry=30.0),
            socket_options=_watched(self.silence),
        )
        async with self._transport:
            yield

    async def owner(self, headers: Mapping[str, str], *, by_cookie: bool = False) -> str | None:
        """The URL of the other node that has the connection which a request names, if any has."""
        if _US in headers.get("via", ""):
            return None
        connection_id = headers.get(CONNECTION)
        if connection_id is None and by_cookie:
            connection_id = cookie_of(headers.get("cookie", ""))
        return await self.directory.owner_of_connection(connection_id) if connection_id else None

    async def relay_socket(self, owner: str, client: Peeked) -> bool:
        """Have the owner serve a WebSocket; False: it does not, and nothing was read or said."""
        found = await self._hand_over(owner, client.head)
        if found is None:
            return False
        stream, answer = found
        try:
            with suppress(*BROKEN):
                # What was peeked: the head, which the owner has, and what the client said too soon.
                early = (await client.receive_some()).partition(_END)[2]
                await client.send_all(answer)
                await stream.send_all(early)
                await copy_bytes(client, stream)
        finally:
            await trio.aclose_forcefully(stream)
        return True

    async def relay_messages(
        self,
        owner: str,
        scope: Mapping[str, Any],
        accept: Callable[[Headers], Awaitable[None]],
        client: Messages,
        most: int,
    ) -> bool:
        """As `relay_socket`, for a WebSocket that comes as messages, `most` bytes each."""
        import trio_websocket

        host = next((value for name, value in scope["headers"] if name == b"host"), b"")
        headers = [*_beyond_handshake(scope["headers"]), (b"via", f"1.1 {_US}".encode())]
        stream: _Connected | None = None
        socket: trio_websocket.WebSocketConnection | None = None
        try:
            async with background() as nursery:
                with trio.move_on_after(self.patience):
                    stream = await self._connect(owner)
                    socket = await trio_websocket.wrap_client_stream(
                        nursery,
                        stream,
                        host.decode("latin-1"),
                        scope["path"],
                        extra_headers=headers,
                        message_queue_size=1,
                        max_message_size=most,
                        receive_buffer_size=_CHUNK,
                    )
                if socket is not None:
                    await accept(list(_beyond_handshake(socket.handshake_headers)))
                    await copy_messages(client, socket)
        except* trio_websocket.HandshakeError:
            pass  # the owner does not take it
        except* BROKEN as group:
            _unreached(owner, group.exceptions[0])
        finally:
            if stream is not None:
                await trio.aclose_forcefully(stream)
        return socket is not None

    async def relay_exchange(
        self,
        owner: str,
        scope: Mapping[str, Any],
        body: bytes,
        send: Callable[[dict[str, Any]], Awaitable[None]],
    ) -> bool:
        """Have the owner answer a request; False: it cannot be reached, and nothing was said."""
        import httpx2

        query = scope["query_string"].decode("latin-1")
        request = httpx2.Request(
            scope["method"],
            owner + scope["path"] + (f"?{query}" if query else ""),
            headers=[*_end_to_end(scope["headers"]), (b"via", f"1.1 {_US}".encode())],
            content=body,
            extensions={"timeout": {"connect": self.patience, "pool": self.patience}},
        )
        try:
            response = await self._transport.handle_async_request(request)
        except (httpx2.ConnectError, httpx2.ConnectTimeout) as exc:
            _unreached(owner, exc)
            return False
        except httpx2.TransportError as exc:
            _unreached(owner, exc)
            await send({"type": "http.response.start", "status": 502, "headers": []})
            await send({"type": "http.response.body", "body": b"the owner gave no answer"})
            return True
        try:
            headers = [pair for pair in _end_to_end(response.headers.raw) if pair[0] != b"date"]
            start = {"type": "http.response.start", "status": response.status_code}
            await send({**start, "headers": headers})
            async with aclosing(response.aiter_raw()) as chunks:
                async for chunk in chunks:
                    await send({"type": "http.response.body", "body": chunk, "more_body": True})
            await send({"type": "http.response.body", "body": b""})
        finally:
            with trio.CancelScope(shield=True):
                await response.aclose()
        return True

    async def _hand_over(self, owner: str, head: bytes) -> tuple[_Connected, bytes] | None:
        """A stream to the owner, on which it agreed to the upgrade, and how it said so."""
        request, _, rest = head.partition(b"\r\n")
        asked = b"\r\n".join([request, f"Via: 1.1 {_US}".encode(), rest]) + _END
        stream: _Connected | None = None
        answer = b""
        with trio.move_on_after(self.patience):
            try:
                stream = await self._connect(owner)
                await stream.send_all(asked)
                while _END not in answer and (more := await stream.receive_some(_CHUNK)):
                    answer += more
            except BROKEN as exc:
                _unreached(owner, exc)
        if stream is not None and answer.startswith(b"HTTP/1.1 101 ") and _END in answer:
            return stream, answer
        if stream is not None:
            await trio.aclose_forcefully(stream)
        return None

    async def _connect(self, owner: str) -> _Connected:
        stream = await trio.open_tcp_stream(*_address(owner))
        for level, name, value in _watched(self.silence):
            stream.setsockopt(level, name, value)
        if not owner.startswith("https:"):
            return stream
        host, _ = _address(owner)
        return trio.SSLStream(stream, self._tls, server_hostname=host, https_compatible=True)


async def is_gone(owner: str) -> bool:
    """Whether nobody listens there any more: the node died, and its lease has not run out yet."""
    try:
        with trio.move_on_after(_PROBE):
            await trio.aclose_forcefully(await trio.open_tcp_stream(*_address(owner)))
    except OSError as exc:
        cause = exc.__cause__
        causes = cause.exceptions if isinstance(cause, BaseExceptionGroup) else [cause]
        return all(isinstance(each, ConnectionRefusedError) for each in causes)
    return False


def _address(owner: str) -> tuple[str, int]:
    parts = urlsplit(owner)
    return parts.hostname or "", parts.port or (443 if parts.scheme == "https" else 80)


def cookie_of(header: str) -> str | None:
    """The id of a connection, out of the `Cookie` header."""
    try:
        morsel = SimpleCookie(header).get(COOKIE)
    except CookieError:
        return None
    return None if morsel is None else morsel.value


def _end_to_end(headers: Headers) -> Iterator[tuple[bytes, bytes]]:
    return (pair for pair in headers if pair[0].lower() not in _OF_ONE_HOP)


def _beyond_handshake(headers: Headers) -> Iterator[tuple[bytes, bytes]]:
    """Without what each of the two handshakes has of its own."""
    for name, value in _end_to_end(headers):
        low = name.lower()
        if low not in (b"host", b"date") and not low.startswith(b"sec-websocket-"):
            yield low, value


def _unreached(owner: str, error: Exception) -> None:
    log.warning("another node cannot be reached", url=owner, error=str(error) or repr(error))


def _watched(silence: float) -> list[tuple[int, int, int]]:
    """Options of a socket by which the kernel finds out that the other machine is gone."""
    wanted = {
        "TCP_KEEPIDLE": round(silence / 2),
        "TCP_KEEPINTVL": round(silence / 8),
        "TCP_KEEPCNT": 4,
        "TCP_USER_TIMEOUT": round(silence * 1000),
    }
    tcp = stdlib_socket.IPPROTO_TCP
    known = [
        (tcp, getattr(stdlib_socket, name), value)
        for name, value in wanted.items()
        if hasattr(stdlib_socket, name)
    ]
    keepalive = (stdlib_socket.SOL_SOCKET, stdlib_socket.SO_KEEPALIVE, 1)
    return [keepalive, (tcp, stdlib_socket.TCP_NODELAY, 1), *known]
