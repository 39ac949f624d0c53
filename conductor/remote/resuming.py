"""Goes on with a server of ours over one WebSocket after the other (`carrying`).

Who is spoken for never sees that a socket was lost. It is over when either end has said its last
word, or when the server cannot be reached for as long as it said that it keeps what is ours, or has
forgotten it; then the component has failed, and its contract says what follows.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractAsyncContextManager
from typing import Final, TypeAlias

import attrs
import trio

from conductor.log import get_logger
from conductor.remote.carrying import RECEIVED, RESUME, Carrier
from conductor.remote.link import RemoteLink
from conductor.remote.network import Unreachable
from conductor.remote.numbering import OutOfStep
from conductor.remote.perseverance import NOBODY
from conductor.remote.websocket import WebSocket, keep_asking

__all__ = ["OFFER", "Agreement", "go_on"]

_CONNECTION: Final = "acp-connection-id"
_FIRST_DELAY: Final = 0.1
_LONGEST_DELAY: Final = 10.0
_TRY_AGAIN: Final = frozenset({408, 425, 429})
"""Refusals of 4xx that are not for good."""
_FOR_GOOD: Final = frozenset({1002, 1003, 1007, 1008, 1009, 1010, 4400})
"""Codes of close frames that say that we did something wrong (RFC 6455 §7.4.1)."""

log = get_logger(component="conductor")

Headers: TypeAlias = tuple[tuple[str, str], ...]
Connect: TypeAlias = Callable[[Headers], AbstractAsyncContextManager[WebSocket]]

OFFER: Final[Headers] = ((RESUME, "1"),)
"""What tells a server that we are of its kind; others do not mind."""


@attrs.frozen
class Agreement:
    """What a server of ours said when it let us in."""

    id: str = attrs.field(repr=False)
    keep: float
    """For how many seconds it keeps what belongs to a connection that is cut."""

    @classmethod
    def of(cls, headers: Mapping[str, str]) -> Agreement | None:
        """None: it is not one of ours."""
        try:
            return cls(headers[_CONNECTION], float(headers[RESUME]))
        except (KeyError, ValueError):
            return None


async def go_on(
    first: WebSocket, agreement: Agreement, link: RemoteLink, connect: Connect, ping_timeout: float
) -> None:
    """Carry the link's lines, over `first` and its successors, until the server has said its last
    word. Ends the link where that cannot be."""
    carrier = Carrier(link.lines)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(carrier.run)
        await _carry(first, carrier, 0, link, ping_timeout)
        await first.cut()
        while not carrier.peer_ended:
            await _return(carrier, agreement, link, connect, ping_timeout)
        nursery.cancel_scope.cancel()


async def _return(
    carrier: Carrier,
    agreement: Agreement,
    link: RemoteLink,
    connect: Connect,
    ping_timeout: float,
) -> None:
    """Reach the server again, and carry over the socket to its end."""
    until = trio.current_time() + agreement.keep
    reason, nobody_since = "it was cut", math.inf
    told = False
    for delay in _delays():
        await trio.sleep(delay)
        if trio.current_time() > until:
            link.lost(f"{reason}; gave up after {agreement.keep:g} s")
            return
        headers = ((_CONNECTION, agreement.id), (RECEIVED, str(carrier.received)))
        with trio.move_on_after(ping_timeout) as attempt:
            try:
                async with connect(headers) as socket:
                    attempt.deadline = math.inf
                    received = socket.headers.get(RECEIVED, "")
                    await _carry(socket, carrier, received, link, ping_timeout)
                    return
            except Unreachable as exc:
                reason = str(exc)
                if not told and exc.status is None:
                    log.warning("the connection was cut, and is tried again", reason=reason)
                    told = True
                now = trio.current_time()
                nobody_since = min(nobody_since, now) if exc.nobody else math.inf
                if now - nobody_since >= NOBODY:
                    link.lost(f"{reason} (for {NOBODY:g} s)")
                    return
                if exc.status == 404:
                    link.lost(
                        "it has forgotten us (404): it was cut for too long, or has begun anew"
                    )
                    return
                if exc.status is not None and _is_final(exc.status):
                    link.end(reason)
                    return
        if attempt.cancelled_caught:
            reason = f"no answer within {ping_timeout:g} s"


async def _carry(
    socket: WebSocket, carrier: Carrier, received: int | str, link: RemoteLink, ping_timeout: float
) -> None:
    socket.always_read = True
    async with trio.open_nursery() as nursery:
        nursery.start_soon(keep_asking, socket, ping_timeout)
        try:
            await carrier.carry(socket, int(received))
        except (OutOfStep, ValueError) as exc:
            link.lost(f"it cannot be resumed: {exc}")
        nursery.cancel_scope.cancel()
    if carrier.peer_ended or (socket.closed is not None and socket.closed.code in _FOR_GOOD):
        link.end(socket.how_it_ended(link.where))


def _is_final(status: int) -> bool:
    return 400 <= status < 500 and status not in _TRY_AGAIN


def _delays() -> Iterator[float]:
    """Seconds to wait before each attempt: longer and longer, and not all clients at once."""
    longest = _FIRST_DELAY
    while True:
        yield random.uniform(longest / 2, longest)
        longest = min(longest * 2, _LONGEST_DELAY)
