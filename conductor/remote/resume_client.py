"""Goes on with a server of ours over one WebSocket after the other (`carrying`).

Who is spoken for never sees that a socket was lost. It is over when either end has said its last
word, or when the server cannot be reached for as long as it said that it keeps what is ours, or has
forgotten it; then the component has failed, and its contract says what follows.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager
from typing import Final, TypeAlias

import attrs
import trio

from conductor.acp import CONNECTION_HEADER
from conductor.log import get_logger
from conductor.network.backoff import REFUSED_TIMEOUT, retry_delays
from conductor.network.resumable_stream import RECEIVED_HEADER, RESUME_HEADER, ResumableStream
from conductor.network.sequence_numbers import SequenceError
from conductor.network.tcp import Unreachable
from conductor.remote.transport import RemoteTransport
from conductor.remote.websocket_connection import ClientWebSocket, send_pings

__all__ = ["RESUME_OFFER", "ResumeTerms", "relay_resumable"]

_RETRY_STATUSES: Final = frozenset({408, 425, 429})
"""Refusals of 4xx that are not for good."""
_FINAL_CLOSE_CODES: Final = frozenset({1002, 1003, 1007, 1008, 1009, 1010, 4400})
"""Codes of close frames that say that we did something wrong (RFC 6455 §7.4.1)."""

log = get_logger(component="conductor")

HeaderPairs: TypeAlias = tuple[tuple[str, str], ...]
Connect: TypeAlias = Callable[[HeaderPairs], AbstractAsyncContextManager[ClientWebSocket]]

RESUME_OFFER: Final[HeaderPairs] = ((RESUME_HEADER, "1"),)
"""What tells a server that we are of its kind; others do not mind."""


@attrs.frozen
class ResumeTerms:
    """What a server of ours said when it let us in."""

    id: str = attrs.field(repr=False)
    keep: float
    """For how many seconds it keeps what belongs to a connection that is cut."""

    @classmethod
    def from_headers(cls, headers: Mapping[str, str]) -> ResumeTerms | None:
        """None: it is not one of ours."""
        try:
            return cls(headers[CONNECTION_HEADER], float(headers[RESUME_HEADER]))
        except (KeyError, ValueError):
            return None


async def relay_resumable(
    first: ClientWebSocket,
    terms: ResumeTerms,
    transport: RemoteTransport,
    connect: Connect,
    ping_timeout: float,
) -> None:
    """Carry the link's lines, over `first` and its successors, until the server has said its last
    word. Ends the link where that cannot be."""
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
    terms: ResumeTerms,
    transport: RemoteTransport,
    connect: Connect,
    ping_timeout: float,
) -> None:
    """Reach the server again, and carry over the socket to its end."""
    until = trio.current_time() + terms.keep
    reason, refused_since = "it was cut", math.inf
    told = False
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
                if not told and exc.status is None:
                    log.warning("the connection was cut, and is tried again", reason=reason)
                    told = True
                now = trio.current_time()
                refused_since = min(refused_since, now) if exc.refused else math.inf
                if now - refused_since >= REFUSED_TIMEOUT:
                    transport.lost(f"{reason} (for {REFUSED_TIMEOUT:g} s)")
                    return
                if exc.status == 404:
                    transport.lost(
                        "it has forgotten us (404): it was cut for too long, or has begun anew"
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
