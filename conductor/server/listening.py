"""What listens: TCP connections come in, and go to whoever speaks their protocol.

The first bytes decide. An HTTP/1.1 request to upgrade to a WebSocket goes to trio-websocket, since
ASGI can neither send pings nor see the answers; HTTP/2, by ALPN or with prior knowledge, and all
other HTTP/1.1 go to hypercorn. Every connection can be closed from here, which frees whoever waits
in it, however shielded (hypercorn shields what it sends).
"""

from __future__ import annotations

import socket as stdlib_socket
import ssl
import traceback
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial
from typing import Any, Final

import attrs
import h2.exceptions
import h11
import trio
import trio_websocket
from hypercorn.app_wrappers import ASGIWrapper
from hypercorn.trio.tcp_server import TCPServer
from hypercorn.trio.worker_context import WorkerContext

from conductor.components.stderr import Allowance
from conductor.log import get_logger
from conductor.remote.carrying import MORE
from conductor.remote.parting import Parting
from conductor.server.access import Peer, Refusal, join_headers
from conductor.server.addresses import accept
from conductor.server.app import App
from conductor.server.bounded_sockets import BoundedConfig, TrioWebSocket, install, wrap
from conductor.server.bounds import Bounds, Patience
from conductor.server.certificates import NoName, name_in
from conductor.server.exchange import encoded
from conductor.server.failures import place_of
from conductor.server.peeking import Peeked, asks_for_websocket, headers_of
from conductor.server.shares import PAYER, Payer
from conductor.server.sockets import TrioSocket, carry
from conductor.server.unfinished import Unfinished

__all__ = ["Doorman", "tls_context"]

_CHUNK: Final = 65536

_GONE: Final = (
    OSError,  # ssl.SSLError is one
    trio.BrokenResourceError,
    trio.ClosedResourceError,
    trio_websocket.ConnectionClosed,  # even while it is being refused
    h2.exceptions.H2Error,
    h11.ProtocolError,
)

log = get_logger(component="server")


@attrs.define(eq=False)
class Doorman:
    """Takes TCP connections in, within bounds."""

    app: App
    bounds: Bounds
    patience: Patience
    tls: ssl.SSLContext | None = None
    _open: dict[trio.SocketStream, str] = attrs.field(factory=dict, init=False)
    """TCP connections, and from which address."""
    _counts: Counter[str] = attrs.field(factory=Counter, init=False)
    _refused: Allowance = attrs.field(factory=Allowance, init=False)
    """Certificates that may be reported."""
    _config: BoundedConfig = attrs.field(init=False)
    _context: WorkerContext = attrs.field(factory=lambda: WorkerContext(None), init=False)

    def __attrs_post_init__(self) -> None:
        install()
        self._config = _config(self.bounds, self.patience, self.app.unfinished)

    async def serve(self, listener: trio.SocketListener) -> None:
        """Take in who comes, until cancelled."""
        async with trio.open_nursery() as nursery:
            while True:
                stream = await accept(listener)
                address = _address(stream.socket.getpeername)
                if (
                    len(self._open) >= self.bounds.sockets
                    or self._counts[address] >= self.bounds.sockets_each
                ):
                    await trio.aclose_forcefully(stream)
                    continue
                nursery.start_soon(self._take_in, stream, address)

    def end(self) -> None:
        """Close every connection now, which frees even what is shielded from cancellation."""
        for stream in list(self._open):
            stream.socket.close()

    async def _take_in(self, stream: trio.SocketStream, address: str) -> None:
        self._open[stream] = address
        self._counts[address] += 1
        payer = Payer(self.app.clients.shares.account(address))
        PAYER.set(payer)
        try:
            _watch_by_tcp(stream.socket, self.patience)
            await self.app.turn()
            await self._speak(stream, address)
        except Exception as exc:
            # h2 and hypercorn have more ways to say that a peer is gone than they document.
            if not _is_gone(exc):
                log.warning("a connection was given up", address=address, **place_of(exc))
        finally:
            await trio.aclose_forcefully(stream)
            del self._open[stream]
            self._counts[address] -= 1
            if not self._counts[address]:
                del self._counts[address]

    async def _speak(self, stream: trio.SocketStream, address: str) -> None:
        peeked = Peeked(stream, self.app.turn)
        certificate = None
        with trio.move_on_after(self.patience.headers) as patience:
            if self.tls is not None:
                secured = trio.SSLStream(stream, self.tls, server_side=True, https_compatible=True)
                peeked = Peeked(secured, self.app.turn)
                await self._shake_hands(secured, address)
                certificate = self._name_in_certificate(secured, address)
            if self.tls is None or secured.selected_alpn_protocol() != "h2":
                await peeked.peek(self.bounds.header_bytes)
        if patience.cancelled_caught:
            return
        peer = Peer(
            address=address,
            local=_address(stream.socket.getsockname),
            certificate=certificate,
            secure=self.tls is not None,
        )
        if asks_for_websocket(peeked.head):
            self.app.charge(join_headers(headers_of(peeked.head)), peer)
            await self.app.turn()
            if not await self.app.forwards(peeked, peer):
                await self._websocket(peeked, peer, stream)
        else:
            app = ASGIWrapper(partial(self._answer, peer))
            await _HttpServer(app, self._config, self._context, {}, peeked).run()  # type: ignore[arg-type]

    async def _shake_hands(self, secured: trio.SSLStream[trio.SocketStream], address: str) -> None:
        """Whoever is refused for its certificate is not told so, and asks whoever reads the log."""
        try:
            await secured.do_handshake()
        except trio.BrokenResourceError as exc:
            if isinstance(exc.__cause__, ssl.SSLCertVerificationError):
                self._report_refused(address, exc.__cause__.verify_message)
            raise

    def _name_in_certificate(
        self, secured: trio.SSLStream[trio.SocketStream], address: str
    ) -> str | None:
        certificate: Any = secured.getpeercert()
        if not certificate:
            return None
        try:
            return name_in(certificate, self.app.access.client_name)
        except NoName as exc:
            self._report_refused(address, str(exc))
            return None

    def _report_refused(self, address: str, reason: str) -> None:
        if (more := self._refused.report(trio.current_time())) is not None:
            log.info("a client certificate was refused", address=address, reason=reason, **more)

    async def _answer(self, peer: Peer, scope: Any, receive: Any, send: Any) -> None:
        try:
            await self.app(peer, scope, receive, send)
        except Exception as exc:  # a mistake of ours: hypercorn answers 500
            log.error("a request failed", **place_of(exc))
            raise

    async def _websocket(self, peeked: Peeked, peer: Peer, stream: trio.SocketStream) -> None:
        parting = Parting(peeked)
        async with trio.open_nursery() as nursery:
            wrapped = None
            unfinished = self.app.unfinished()
            with trio.move_on_after(self.patience.headers):
                wrapped = await wrap(
                    nursery,
                    parting,
                    unfinished,
                    max_message_size=self.bounds.message_bytes + _more(peeked.head),
                    receive_buffer_size=_CHUNK,
                )
            if wrapped is not None:
                request, connection = wrapped
                nursery.start_soon(unfinished.watch, connection.give_up)
                cut = partial(trio.aclose_forcefully, stream)
                try:
                    await self._upgrade(request, connection, peeked, parting, peer, cut)
                finally:
                    unfinished.done()
            await trio.aclose_forcefully(stream)
            nursery.cancel_scope.cancel()

    async def _upgrade(
        self,
        request: trio_websocket.WebSocketRequest,
        bounded: TrioWebSocket,
        peeked: Peeked,
        parting: Parting,
        peer: Peer,
        cut: Callable[[], Awaitable[None]],
    ) -> None:
        # wsproto takes the Host out of the headers.
        headers = join_headers([*request.headers, *_host_of(peeked.head)])
        opened = self.app.upgrade(request.path, headers, peer)
        if isinstance(opened, Refusal):
            extra = [*opened.headers, ("content-type", "text/plain; charset=utf-8")]
            with trio.move_on_after(self.patience.headers):
                await request.reject(
                    opened.status, extra_headers=encoded(extra), body=opened.reason.encode()
                )
            return
        arrival, identity = opened
        bounded.unfinished.whose = arrival.client.owner.counted_as
        peeked.head = b""
        with trio.move_on_after(self.patience.headers) as patience:
            connection = await request.accept(extra_headers=encoded(identity))
        if not patience.cancelled_caught:
            parting.connection = connection
            socket = TrioSocket(connection, peeked, cut)
            await carry(socket, arrival, self.patience)


def _more(head: bytes) -> int:
    """What a message of one of our own ends may be longer than a message of the protocol."""
    return MORE if b"\r\nacp-conductor-re" in head.lower() else 0


class _HttpServer(TCPServer):
    """hypercorn's, which would keep a connection that the peer has closed until it was idle for as
    long as one may be."""

    async def _read_data(self) -> None:
        await super()._read_data()
        await self.idle_task.stop()


def tls_context(cert: str, key: str, client_ca: str | None) -> ssl.SSLContext:
    """For a server; a client may show a certificate where `client_ca` can check it."""
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.options |= ssl.OP_NO_COMPRESSION
    context.set_alpn_protocols(["h2", "http/1.1"])
    context.load_cert_chain(cert, key)
    if client_ca is not None:
        context.load_verify_locations(client_ca)
        context.verify_mode = ssl.CERT_OPTIONAL  # so that health can be asked for without one
    return context


def _config(
    bounds: Bounds, patience: Patience, unfinished: Callable[[], Unfinished]
) -> BoundedConfig:
    config = BoundedConfig()
    config.unfinished = unfinished
    config.accesslog = config.errorlog = None
    config.include_server_header = False
    config.h11_max_incomplete_size = config.h2_max_header_list_size = bounds.header_bytes
    config.websocket_max_message_size = bounds.message_bytes
    config.websocket_ping_interval = patience.ping_interval
    config.h2_max_concurrent_streams = bounds.streams + 100
    config.keep_alive_timeout = max(patience.headers, 75.0)
    config.keep_alive_max_requests = 1_000_000_000
    return config


def _watch_by_tcp(socket: trio.socket.SocketType, patience: Patience) -> None:
    """Have the kernel find out about a peer that is gone, whatever protocol is spoken."""
    silence = max(1, round(patience.ping_interval + patience.ping_timeout))
    options = [
        (stdlib_socket.SOL_SOCKET, "SO_KEEPALIVE", 1),
        (stdlib_socket.IPPROTO_TCP, "TCP_NODELAY", 1),
        # What waits in the kernel cannot be seen to move, and a ping waits behind it.
        (stdlib_socket.IPPROTO_TCP, "TCP_NOTSENT_LOWAT", 2 * _CHUNK),
        (stdlib_socket.IPPROTO_TCP, "TCP_KEEPIDLE", max(1, round(patience.ping_interval))),
        (stdlib_socket.IPPROTO_TCP, "TCP_KEEPINTVL", max(1, round(patience.ping_timeout / 4))),
        (stdlib_socket.IPPROTO_TCP, "TCP_KEEPCNT", 4),
        (stdlib_socket.IPPROTO_TCP, "TCP_USER_TIMEOUT", silence * 1000),
    ]
    for level, name, value in options:
        with suppress(OSError):
            if hasattr(stdlib_socket, name):
                socket.setsockopt(level, getattr(stdlib_socket, name), value)


def _is_gone(exc: BaseException) -> bool:
    """Whether this only says that the peer is gone, or never spoke the protocol."""
    if isinstance(exc, BaseExceptionGroup):
        return all(map(_is_gone, exc.exceptions))
    if isinstance(exc, KeyError):  # hypercorn's, for what still comes for an answered request
        frames = traceback.extract_tb(exc.__traceback__)
        return bool(frames) and "hypercorn" in frames[-1].filename
    return isinstance(exc, _GONE)


def _address(name: Callable[[], Any]) -> str:
    try:
        address = str(name()[0])
    except OSError:
        return ""
    return address.removeprefix("::ffff:").partition("%")[0]


def _host_of(head: bytes) -> list[tuple[bytes, bytes]]:
    lines = head.split(b"\r\n")
    pairs = (line.partition(b":") for line in lines[1:])
    return [(name, value.strip()) for name, _, value in pairs if name.lower() == b"host"]
