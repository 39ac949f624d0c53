"""Forward requests to the node that has their connection.

A request is forwarded unchanged, with the client's credentials, which the other node checks again.
Nodes speak only HTTP, and `Via` (RFC 9110 §7.6.3) prevents loops. A WebSocket is tunnelled as bytes
where possible, so pings, close and back-pressure are end to end; responses are streamed.

If the other node is unreachable or refuses a WebSocket (because it is draining), the request is
handled here, as if the connection were unknown.
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
from conductor.background_tasks import background_tasks
from conductor.log import get_logger
from conductor.network.keepalive import SocketOption, keep_alive_options
from conductor.server.cluster.directory import SessionDirectory
from conductor.server.cluster.tunnel import STREAM_ERRORS, MessageSocket, copy_bytes, copy_messages

if TYPE_CHECKING:
    from httpx2 import AsyncHTTPTransport

    from conductor.server.protocol_sniff import PeekableStream

__all__ = ["CONNECTION_COOKIE", "NodeForwarder", "connection_cookie", "is_node_down"]

CONNECTION_COOKIE: Final = "acp_connection"
"""Cookie with the id of a client's connection."""
_VIA_NAME: Final = "acp-conductor"
_CHUNK: Final = 65536
_HEAD_END: Final = b"\r\n\r\n"
_PROBE_TIMEOUT: Final = 1.0
_HOP_BY_HOP_HEADERS: Final = {
    *(b"connection", b"keep-alive", b"proxy-connection", b"te", b"trailer", b"transfer-encoding"),
    b"upgrade",
}
"""Hop-by-hop headers (RFC 9110 §7.6.1)."""

Headers: TypeAlias = Iterable[tuple[bytes, bytes]]
_NodeStream: TypeAlias = "trio.SocketStream | trio.SSLStream[trio.SocketStream]"

log: Final = get_logger(component="server")


@attrs.define(eq=False)
class NodeForwarder:
    """Forwards from this node to the others."""

    directory: SessionDirectory
    connect_timeout: float = 5.0
    """Seconds for another node to accept a TCP connection and a WebSocket."""
    keep_alive_timeout: float = 40.0
    """Seconds without TCP acknowledgements after which a connection to a node fails."""
    _transport: AsyncHTTPTransport = attrs.field(init=False)
    _tls: ssl.SSLContext = attrs.field(factory=ssl.create_default_context, init=False)

    @asynccontextmanager
    async def open(self) -> AsyncIterator[None]:
        """Open the HTTP transport during the block."""
        import httpx2

        # A transport instead of a client: stores no cookies and follows no redirects.
        self._transport = httpx2.AsyncHTTPTransport(
            verify=self._tls,
            http2=False,  # HTTP/2 would not report a stream that is no longer read
            trust_env=False,
            limits=httpx2.Limits(keepalive_expiry=30.0),
            socket_options=_socket_options(self.keep_alive_timeout),
        )
        async with self._transport:
            yield

    async def owner(self, headers: Mapping[str, str], *, by_cookie: bool = False) -> str | None:
        """URL of the other node with the connection that a request names, or `None`."""
        if _VIA_NAME in headers.get("via", ""):
            return None
        connection_id = headers.get(CONNECTION_HEADER)
        if connection_id is None and by_cookie:
            connection_id = connection_cookie(headers.get("cookie", ""))
        return await self.directory.owner_of_connection(connection_id) if connection_id else None

    async def tunnel_socket(self, owner: str, client: PeekableStream) -> bool:
        """Tunnel a WebSocket to `owner`; `False`: it refused, and no bytes were read or sent."""
        found = await self._hand_over(owner, client.head)
        if found is None:
            return False
        stream, answer = found
        try:
            with suppress(*STREAM_ERRORS):
                # Peeked bytes: the head, already sent to the owner, and early frames of the client.
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
        """Like `tunnel_socket`, for an ASGI WebSocket. `most`: bytes of a message."""
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
            pass  # refused by the owner
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
        """Let `owner` answer a request; `False`: it is unreachable, and nothing was sent."""
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
        """A stream to the owner after its 101 response, and that response; `None` if refused."""
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
    """Whether a node refuses TCP connections: it has died, and its lease has not expired."""
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
    """The connection id in a `Cookie` header, or `None`."""
    try:
        morsel = SimpleCookie(header).get(CONNECTION_COOKIE)
    except CookieError:
        return None
    return None if morsel is None else morsel.value


def _end_to_end_headers(headers: Headers) -> Iterator[tuple[bytes, bytes]]:
    return (pair for pair in headers if pair[0].lower() not in _HOP_BY_HOP_HEADERS)


def _application_headers(headers: Headers) -> Iterator[tuple[bytes, bytes]]:
    """Headers without those of a single WebSocket handshake."""
    for name, value in _end_to_end_headers(headers):
        low = name.lower()
        if low not in (b"host", b"date") and not low.startswith(b"sec-websocket-"):
            yield low, value


def _log_unreachable(owner: str, error: Exception) -> None:
    log.warning("node unreachable", url=owner, error=str(error) or repr(error))


def _socket_options(timeout: float) -> list[SocketOption]:
    """Keep-alive with a user timeout: the next hop is a node, which always reads."""
    keep_alive = keep_alive_options(
        idle=timeout / 2, interval=timeout / 8, probes=4, user_timeout=timeout
    )
    return [(stdlib_socket.IPPROTO_TCP, stdlib_socket.TCP_NODELAY, 1), *keep_alive]
