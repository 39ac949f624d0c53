"""Accept TCP connections, detect their protocol and dispatch them.

A WebSocket upgrade over HTTP/1.1 goes to trio-websocket, since ASGI can neither send pings nor see
pongs; HTTP/2 (ALPN or prior knowledge) and other HTTP/1.1 requests go to hypercorn. `end` closes
the sockets of all connections, which also wakes tasks shielded from cancellation (hypercorn shields
its writes).
"""

from __future__ import annotations

import socket as stdlib_socket
import ssl
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial
from typing import Any, Final

import attrs
import trio
import trio_websocket

from conductor.errors import exception_location
from conductor.log import get_logger
from conductor.network.hypercorn_connection import is_peer_gone, serve_http
from conductor.network.peer_user import peer_user
from conductor.network.resumable_stream import FRAME_OVERHEAD
from conductor.network.sockets import accept, keep_alive_options
from conductor.network.websocket import CloseHandshakeStream
from conductor.server.access import Refusal, TcpPeer, join_headers
from conductor.server.app import BRIDGE_PATH, AsgiApp
from conductor.server.http.request_response import encode_headers
from conductor.server.limits import ServerLimits, ServerTimeouts
from conductor.server.protocol_sniff import PeekableStream, is_websocket_upgrade
from conductor.server.websocket.bounded import (
    BoundedConfig,
    patch_hypercorn,
    wrap_server_stream,
)
from conductor.server.websocket.connection import TrioServerWebSocket, serve_websocket
from conductor.server.websocket.partial_message import PartialMessage

__all__ = ["TcpAcceptor"]

_CHUNK: Final = 65536

_WEBSOCKET_GONE: Final = (trio_websocket.ConnectionClosed,)  # even while it is being refused

log: Final = get_logger(component="server")


@attrs.define(eq=False)
class TcpAcceptor:
    """Accepts TCP connections, within limits."""

    app: AsgiApp
    limits: ServerLimits
    timeouts: ServerTimeouts
    tls: ssl.SSLContext | None = None
    _open: dict[trio.SocketStream, str] = attrs.field(factory=dict, init=False)
    """Open connections with their remote addresses."""
    _counts: Counter[str] = attrs.field(factory=Counter, init=False)
    _config: BoundedConfig = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        patch_hypercorn()
        self._config = _config(self.limits, self.timeouts, self.app.partial_message)

    async def serve(self, listener: trio.SocketListener) -> None:
        """Accept connections until cancelled."""
        async with trio.open_nursery() as nursery:
            while True:
                stream = await accept(listener)
                address = _socket_address(stream.socket.getpeername)
                if (
                    len(self._open) >= self.limits.sockets
                    or self._counts[address] >= self.limits.sockets_each
                ):
                    await trio.aclose_forcefully(stream)
                    continue
                nursery.start_soon(self._handle_connection, stream, address)

    def end(self) -> None:
        """Close all sockets now, which also wakes tasks shielded from cancellation."""
        for stream in list(self._open):
            stream.socket.close()

    async def _handle_connection(self, stream: trio.SocketStream, address: str) -> None:
        self._open[stream] = address
        self._counts[address] += 1
        try:
            _set_socket_options(stream.socket, self.timeouts)
            await self._serve_connection(stream, address)
        except Exception as exc:
            # h2 and hypercorn raise undocumented errors for a lost peer.
            if not is_peer_gone(exc, _WEBSOCKET_GONE):
                log.warning("connection failed", address=address, **exception_location(exc))
        finally:
            await trio.aclose_forcefully(stream)
            del self._open[stream]
            self._counts[address] -= 1
            if not self._counts[address]:
                del self._counts[address]

    async def _serve_connection(self, stream: trio.SocketStream, address: str) -> None:
        peekable = PeekableStream(stream)
        has_certificate = False
        user = peer_user(stream.socket) if self.app.access.user is not None else None
        with trio.move_on_after(self.timeouts.headers) as timeout:
            if self.tls is not None:
                secured = trio.SSLStream(stream, self.tls, server_side=True, https_compatible=True)
                peekable = PeekableStream(secured)
                await self._tls_handshake(secured, address)
                has_certificate = bool(secured.getpeercert())
            await peekable.peek(self.limits.header_bytes)
        if timeout.cancelled_caught:
            return
        peer = TcpPeer(
            address=address,
            local=_socket_address(stream.socket.getsockname),
            has_certificate=has_certificate,
            secure=self.tls is not None,
            user=user,
        )
        if is_websocket_upgrade(peekable.head):
            await self._websocket(peekable, peer, stream)
        else:
            await serve_http(partial(self._answer, peer), self._config, peekable)

    async def _tls_handshake(
        self, secured: trio.SSLStream[trio.SocketStream], address: str
    ) -> None:
        """Log a refused certificate: the client does not learn the reason."""
        try:
            await secured.do_handshake()
        except trio.BrokenResourceError as exc:
            if isinstance(exc.__cause__, ssl.SSLCertVerificationError):
                reason = exc.__cause__.verify_message
                log.info("client certificate refused", address=address, reason=reason)
            raise

    async def _answer(self, peer: TcpPeer, scope: Any, receive: Any, send: Any) -> None:
        try:
            await self.app(peer, scope, receive, send)
        except Exception as exc:  # a bug: hypercorn answers 500
            log.error("request failed", **exception_location(exc))
            raise

    async def _websocket(
        self, peekable: PeekableStream, peer: TcpPeer, stream: trio.SocketStream
    ) -> None:
        close_handshake = CloseHandshakeStream(peekable)
        async with trio.open_nursery() as nursery:
            wrapped = None
            partial_message = self.app.partial_message()
            partial_message.address = peer.address
            with trio.move_on_after(self.timeouts.headers):
                wrapped = await wrap_server_stream(
                    nursery,
                    close_handshake,
                    partial_message,
                    max_message_size=self.limits.message_bytes + _frame_overhead(peekable.head),
                    receive_buffer_size=_CHUNK,
                )
            if wrapped is not None:
                request, connection = wrapped
                nursery.start_soon(partial_message.watch, connection.give_up)
                cut = partial(trio.aclose_forcefully, stream)
                try:
                    await self._upgrade(request, peekable, close_handshake, peer, cut)
                finally:
                    partial_message.done()
            await trio.aclose_forcefully(stream)
            nursery.cancel_scope.cancel()
        close_handshake.connection = None  # a reference cycle

    async def _upgrade(
        self,
        request: trio_websocket.WebSocketRequest,
        peekable: PeekableStream,
        close_handshake: CloseHandshakeStream,
        peer: TcpPeer,
        cut: Callable[[], Awaitable[None]],
    ) -> None:
        # wsproto takes the Host out of the headers.
        headers = join_headers([*request.headers, *_host_header(peekable.head)])
        opened = self.app.upgrade(request.path, headers, peer)
        if isinstance(opened, Refusal):
            extra = [*opened.headers, ("content-type", "text/plain; charset=utf-8")]
            with trio.move_on_after(self.timeouts.headers):
                await request.reject(
                    opened.status, extra_headers=encode_headers(extra), body=opened.reason.encode()
                )
            return
        admitted, identity = opened
        peekable.head = b""
        with trio.move_on_after(self.timeouts.headers) as timeout:
            connection = await request.accept(extra_headers=encode_headers(identity))
        if not timeout.cancelled_caught:
            close_handshake.connection = connection
            takes_binary = request.path.partition("?")[0] == BRIDGE_PATH
            socket = TrioServerWebSocket(connection, peekable, cut, takes_binary)
            await serve_websocket(socket, admitted, self.timeouts)


def _frame_overhead(head: bytes) -> int:
    """Additional message size for a conductor as the client: sequence numbers and batching."""
    return FRAME_OVERHEAD if b"\r\nacp-conductor-re" in head.lower() else 0


def _config(
    limits: ServerLimits, timeouts: ServerTimeouts, partial_message: Callable[[], PartialMessage]
) -> BoundedConfig:
    config = BoundedConfig()
    config.partial_message = partial_message
    config.accesslog = config.errorlog = None
    config.include_server_header = False
    config.h11_max_incomplete_size = config.h2_max_header_list_size = limits.header_bytes
    config.websocket_max_message_size = limits.message_bytes
    config.websocket_ping_interval = timeouts.ping_interval
    config.h2_max_concurrent_streams = limits.streams + 100
    config.keep_alive_timeout = max(timeouts.headers, 75.0)
    config.keep_alive_max_requests = 1_000_000_000
    return config


def _set_socket_options(socket: trio.socket.SocketType, timeouts: ServerTimeouts) -> None:
    """Set keep-alive, which detects a dead peer under every protocol, and small send buffers."""
    keep_alive = keep_alive_options(
        idle=timeouts.ping_interval,
        interval=timeouts.ping_timeout / 4,
        probes=4,
        user_timeout=timeouts.ping_interval + timeouts.ping_timeout,
    )
    options = [(stdlib_socket.IPPROTO_TCP, stdlib_socket.TCP_NODELAY, 1), *keep_alive]
    if hasattr(stdlib_socket, "TCP_NOTSENT_LOWAT"):
        # The progress of unsent bytes in the kernel is invisible here, and pings wait behind them.
        level, name = stdlib_socket.IPPROTO_TCP, stdlib_socket.TCP_NOTSENT_LOWAT
        options.append((level, name, 2 * _CHUNK))
    for option in options:
        with suppress(OSError):
            socket.setsockopt(*option)


def _socket_address(name: Callable[[], Any]) -> str:
    try:
        address = str(name()[0])
    except OSError:
        return ""
    return address.removeprefix("::ffff:").partition("%")[0]


def _host_header(head: bytes) -> list[tuple[bytes, bytes]]:
    lines = head.split(b"\r\n")
    pairs = (line.partition(b":") for line in lines[1:])
    return [(name, value.strip()) for name, _, value in pairs if name.lower() == b"host"]
