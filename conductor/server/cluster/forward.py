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

from conductor.acp import CONNECTION_HEADER
from conductor.client.peer import background_tasks
from conductor.log import get_logger
from conductor.network.keepalive import SocketOption, keep_alive_options
from conductor.server.cluster.directory import SessionDirectory
from conductor.server.cluster.tunnel import STREAM_ERRORS, MessageSocket, copy_bytes, copy_messages

if TYPE_CHECKING:
    from httpx2 import AsyncHTTPTransport

    from conductor.server.listen.protocol_sniff import PeekableStream

__all__ = ["CONNECTION_COOKIE", "NodeForwarder", "connection_cookie", "is_node_down"]

CONNECTION_COOKIE: Final = "acp_connection"
"""Holds the id of a client's connection."""
_VIA_NAME: Final = "acp-conductor"
_CHUNK: Final = 65536
_HEAD_END: Final = b"\r\n\r\n"
_PROBE_TIMEOUT: Final = 1.0
_HOP_BY_HOP_HEADERS: Final = {
    *(b"connection", b"keep-alive", b"proxy-connection", b"te", b"trailer", b"transfer-encoding"),
    b"upgrade",
}
"""Headers that speak of one TCP connection (RFC 9110 §7.6.1)."""

Headers: TypeAlias = Iterable[tuple[bytes, bytes]]
_NodeStream: TypeAlias = "trio.SocketStream | trio.SSLStream[trio.SocketStream]"

log = get_logger(component="server")


@attrs.define(eq=False)
class NodeForwarder:
    """From this node to the others."""

    directory: SessionDirectory
    connect_timeout: float = 5.0
    """Seconds in which another node must let itself be connected to, and take a WebSocket."""
    keep_alive_timeout: float = 40.0
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
            socket_options=_socket_options(self.keep_alive_timeout),
        )
        async with self._transport:
            yield

    async def owner(self, headers: Mapping[str, str], *, by_cookie: bool = False) -> str | None:
        """The URL of the other node that has the connection which a request names, if any has."""
        if _VIA_NAME in headers.get("via", ""):
            return None
        connection_id = headers.get(CONNECTION_HEADER)
        if connection_id is None and by_cookie:
            connection_id = connection_cookie(headers.get("cookie", ""))
        return await self.directory.owner_of_connection(connection_id) if connection_id else None

    async def tunnel_socket(self, owner: str, client: PeekableStream) -> bool:
        """Have the owner serve a WebSocket; False: it does not, and nothing was read or said."""
        found = await self._hand_over(owner, client.head)
        if found is None:
            return False
        stream, answer = found
        try:
            with suppress(*STREAM_ERRORS):
                # What was peeked: the head, which the owner has, and what the client said too soon.
                early = (await client.receive_some()).partition(_HEAD_END)[2]
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
        client: MessageSocket,
        most: int,
    ) -> bool:
        """As `tunnel_socket`, for a WebSocket that comes as messages, `most` bytes each."""
        import trio_websocket

        host = next((value for name, value in scope["headers"] if name == b"host"), b"")
        headers = [*_application_headers(scope["headers"]), (b"via", f"1.1 {_VIA_NAME}".encode())]
        stream: _NodeStream | None = None
        socket: trio_websocket.WebSocketConnection | None = None
        try:
            async with background_tasks() as nursery:
                with trio.move_on_after(self.connect_timeout):
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
                    await accept(list(_application_headers(socket.handshake_headers)))
                    await copy_messages(client, socket)
        except* trio_websocket.HandshakeError:
            pass  # the owner does not take it
        except* STREAM_ERRORS as group:
            _log_unreachable(owner, group.exceptions[0])
        finally:
            if stream is not None:
                await trio.aclose_forcefully(stream)
        return socket is not None

    async def forward_request(
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
            headers=[*_end_to_end_headers(scope["headers"]), (b"via", f"1.1 {_VIA_NAME}".encode())],
            content=body,
            extensions={"timeout": {"connect": self.connect_timeout, "pool": self.connect_timeout}},
        )
        try:
            response = await self._transport.handle_async_request(request)
        except (httpx2.ConnectError, httpx2.ConnectTimeout) as exc:
            _log_unreachable(owner, exc)
            return False
        except httpx2.TransportError as exc:
            _log_unreachable(owner, exc)
            await send({"type": "http.response.start", "status": 502, "headers": []})
            await send({"type": "http.response.body", "body": b"the owner gave no answer"})
            return True
        try:
            headers = [
                pair for pair in _end_to_end_headers(response.headers.raw) if pair[0] != b"date"
            ]
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

    async def _hand_over(self, owner: str, head: bytes) -> tuple[_NodeStream, bytes] | None:
        """A stream to the owner, on which it agreed to the upgrade, and how it said so."""
        request, _, rest = head.partition(b"\r\n")
        asked = b"\r\n".join([request, f"Via: 1.1 {_VIA_NAME}".encode(), rest]) + _HEAD_END
        stream: _NodeStream | None = None
        answer = b""
        with trio.move_on_after(self.connect_timeout):
            try:
                stream = await self._connect(owner)
                await stream.send_all(asked)
                while _HEAD_END not in answer and (more := await stream.receive_some(_CHUNK)):
                    answer += more
            except STREAM_ERRORS as exc:
                _log_unreachable(owner, exc)
        if stream is not None and answer.startswith(b"HTTP/1.1 101 ") and _HEAD_END in answer:
            return stream, answer
        if stream is not None:
            await trio.aclose_forcefully(stream)
        return None

    async def _connect(self, owner: str) -> _NodeStream:
        stream = await trio.open_tcp_stream(*_host_and_port(owner))
        for level, name, value in _socket_options(self.keep_alive_timeout):
            stream.setsockopt(level, name, value)
        if not owner.startswith("https:"):
            return stream
        host, _ = _host_and_port(owner)
        return trio.SSLStream(stream, self._tls, server_hostname=host, https_compatible=True)


async def is_node_down(owner: str) -> bool:
    """Whether nobody listens there any more: the node died, and its lease has not run out yet."""
    try:
        with trio.move_on_after(_PROBE_TIMEOUT):
            await trio.aclose_forcefully(await trio.open_tcp_stream(*_host_and_port(owner)))
    except OSError as exc:
        cause = exc.__cause__
        causes = cause.exceptions if isinstance(cause, BaseExceptionGroup) else [cause]
        return all(isinstance(each, ConnectionRefusedError) for each in causes)
    return False


def _host_and_port(owner: str) -> tuple[str, int]:
    parts = urlsplit(owner)
    return parts.hostname or "", parts.port or (443 if parts.scheme == "https" else 80)


def connection_cookie(header: str) -> str | None:
    """The id of a connection, out of the `Cookie` header."""
    try:
        morsel = SimpleCookie(header).get(CONNECTION_COOKIE)
    except CookieError:
        return None
    return None if morsel is None else morsel.value


def _end_to_end_headers(headers: Headers) -> Iterator[tuple[bytes, bytes]]:
    return (pair for pair in headers if pair[0].lower() not in _HOP_BY_HOP_HEADERS)


def _application_headers(headers: Headers) -> Iterator[tuple[bytes, bytes]]:
    """Without what each of the two handshakes has of its own."""
    for name, value in _end_to_end_headers(headers):
        low = name.lower()
        if low not in (b"host", b"date") and not low.startswith(b"sec-websocket-"):
            yield low, value


def _log_unreachable(owner: str, error: Exception) -> None:
    log.warning("another node cannot be reached", url=owner, error=str(error) or repr(error))


def _socket_options(timeout: float) -> list[SocketOption]:
    """Keep-alive with a user timeout: the next hop is a node, which always reads."""
    keep_alive = keep_alive_options(
        idle=timeout / 2, interval=timeout / 8, probes=4, user_timeout=timeout
    )
    return [(stdlib_socket.IPPROTO_TCP, stdlib_socket.TCP_NODELAY, 1), *keep_alive]
