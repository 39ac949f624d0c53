"""Client end of a WebSocket: one message per text frame; resumable with a conductor as the server
(`network.resumable_stream`).

The chain does not see a lost socket of a resumable connection. It ends at EOF of either side, when
the server is unreachable for as long as it keeps a cut connection, or when it no longer knows the
connection; then the component has failed, and its `on_failure` applies.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager
from functools import partial
from http.cookiejar import CookieJar
from typing import Final, TypeAlias

import attrs
import trio

from conductor.acp import CONNECTION_HEADER
from conductor.errors import ConnectionClosed
from conductor.log import get_logger
from conductor.network.address import RemoteAddress
from conductor.network.backoff import REFUSED_TIMEOUT, RefusedConnection, retry_delays
from conductor.network.resumable_stream import RECEIVED_HEADER, RESUME_HEADER, ResumableStream
from conductor.network.sequence_numbers import SequenceError
from conductor.network.tcp import Unreachable, warn_about_plaintext_credentials
from conductor.network.websocket import WebSocket, WebSocketClosed
from conductor.remote.transport import RemoteTransport
from conductor.remote.websocket_connection import ClientWebSocket, open_websocket, send_pings

__all__ = ["relay_messages", "run_transport"]

_RETRY_STATUSES: Final = frozenset({408, 425, 429})
"""4xx statuses after which the attempt is repeated."""
_FINAL_CLOSE_CODES: Final = frozenset({1002, 1003, 1007, 1008, 1009, 1010, 4400})
"""Close codes for errors of this end (RFC 6455 §7.4.1): no reconnection."""

log: Final = get_logger(component="conductor")

_HeaderPairs: TypeAlias = tuple[tuple[str, str], ...]
_Connect: TypeAlias = Callable[[_HeaderPairs], AbstractAsyncContextManager[ClientWebSocket]]

_RESUME_OFFER: Final[_HeaderPairs] = ((RESUME_HEADER, "1"),)
"""Request header that offers resumption; other servers ignore it."""


async def run_transport(
    transport: RemoteTransport, address: RemoteAddress, cookies: CookieJar, ping_timeout: float
) -> None:
    """Run a connection to the endpoint until it ends. Raises `Unreachable`."""
    warn_about_plaintext_credentials(address)
    limit = transport.max_message_bytes
    connect = partial(open_websocket, address, cookies, ping_timeout, limit)
    async with connect(_RESUME_OFFER) as socket:
        transport.reached = True
        terms = _ResumeTerms.from_headers(socket.headers)
        if terms is not None:
            await _relay_resumable(socket, terms, transport, connect, ping_timeout)
            return
        async with trio.open_nursery() as nursery:
            nursery.start_soon(send_pings, socket, ping_timeout)
            await relay_messages(socket, transport)
            nursery.cancel_scope.cancel()
        transport.end(socket.end_reason(transport.location))


async def relay_messages(socket: WebSocket, transport: RemoteTransport) -> None:
    """Relay messages in both directions until the socket is closed."""

    async def send() -> None:
        try:
            while lines := await transport.lines.receive():
                for line in lines:
                    await socket.send(line.decode(errors="replace"))
            await socket.close()
        except WebSocketClosed:
            return  # handled by the receiving loop

    async with trio.open_nursery() as nursery:
        nursery.start_soon(send)
        while (text := await socket.receive()) is not None:
            try:
                await transport.lines.send([text.encode()])
            except ConnectionClosed:
                break
        nursery.cancel_scope.cancel()


@attrs.frozen
class _ResumeTerms:
    """Terms of resumption, from the server's handshake response."""

    id: str = attrs.field(repr=False)
    keep: float
    """Seconds that the server keeps a cut connection."""

    @classmethod
    def from_headers(cls, headers: Mapping[str, str]) -> _ResumeTerms | None:
        """Parse the response headers (lower case); `None` if the server is not a conductor."""
        try:
            return cls(headers[CONNECTION_HEADER], float(headers[RESUME_HEADER]))
        except (KeyError, ValueError):
            return None


async def _relay_resumable(
    first: ClientWebSocket,
    terms: _ResumeTerms,
    transport: RemoteTransport,
    connect: _Connect,
    ping_timeout: float,
) -> None:
    """Relay lines over `first` and its successors until the server sends EOF.

    Ends `transport` if the connection is refused, rejected or cannot be resumed.
    """
    stream = ResumableStream(transport.lines)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(stream.run)
        await _relay(first, stream, 0, transport, ping_timeout)
        await first.cut()
        while not stream.peer_ended:
            await _reconnect(stream, terms, transport, connect, ping_timeout)
        nursery.cancel_scope.cancel()


async def _reconnect(
    stream: ResumableStream,
    terms: _ResumeTerms,
    transport: RemoteTransport,
    connect: _Connect,
    ping_timeout: float,
) -> None:
    """Connect again with backoff, and relay over the new socket until it is closed or lost."""
    until = trio.current_time() + terms.keep
    reason, refusal = "it was cut", RefusedConnection()
    logged = False
    for delay in retry_delays():
        await trio.sleep(delay)
        if trio.current_time() > until:
            transport.lost(f"{reason}; gave up after {terms.keep:g} s")
            return
        headers = ((CONNECTION_HEADER, terms.id), (RECEIVED_HEADER, str(stream.received)))
        with trio.move_on_after(ping_timeout) as attempt:
            try:
                async with connect(headers) as socket:
                    attempt.deadline = math.inf
                    received = socket.headers.get(RECEIVED_HEADER, "")
                    await _relay(socket, stream, received, transport, ping_timeout)
                    return
            except Unreachable as exc:
                reason = str(exc)
                if not logged and exc.status is None:
                    log.warning("connection lost, reconnecting", reason=reason)
                    logged = True
                if refusal.has_timed_out(refused=exc.refused):
                    transport.lost(f"{reason} (for {REFUSED_TIMEOUT:g} s)")
                    return
                if exc.status == 404:
                    transport.lost(
                        "the server no longer knows it (404): cut for too long, or restarted"
                    )
                    return
                if exc.status is not None and _is_final_status(exc.status):
                    transport.end(reason)
                    return
        if attempt.cancelled_caught:
            reason = f"no answer within {ping_timeout:g} s"


async def _relay(
    socket: ClientWebSocket,
    stream: ResumableStream,
    received: int | str,
    transport: RemoteTransport,
    ping_timeout: float,
) -> None:
    socket.peer_always_reads = True
    async with trio.open_nursery() as nursery:
        nursery.start_soon(send_pings, socket, ping_timeout)
        try:
            await stream.carry(socket, int(received))
        except (SequenceError, ValueError) as exc:
            transport.lost(f"it cannot be resumed: {exc}")
        nursery.cancel_scope.cancel()
    if stream.peer_ended or (
        socket.closed is not None and socket.closed.code in _FINAL_CLOSE_CODES
    ):
        transport.end(socket.end_reason(transport.location))


def _is_final_status(status: int) -> bool:
    return 400 <= status < 500 and status not in _RETRY_STATUSES
