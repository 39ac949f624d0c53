"""Limits for a WebSocket message until its last fragment has arrived.

Its fragments share the budget of HTTP bodies (`ReceiveBudget`), in total and by address,
and the next fragment has the same deadline as the next part of a body. The memory of the fragments
is counted: a fragment of a few bytes takes ten times its size.
"""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable
from typing import Final

import attrs
import trio

from conductor.server.http.request_response import ReceiveBudget
from conductor.server.limits import ServerLimits, ServerTimeouts

__all__ = ["TOO_LARGE", "TOO_MUCH", "TOO_SLOW", "CloseStatus", "PartialMessage"]

CloseStatus = tuple[int, str]
"""Close code and reason."""
TOO_LARGE: Final[CloseStatus] = (1009, "the message is too large")
TOO_MUCH: Final[CloseStatus] = (1013, "too much is being received; try again later")
TOO_SLOW: Final[CloseStatus] = (1008, "the rest of the message did not come")
_FRAGMENT_OVERHEAD: Final = 16
"""Bytes counted for a fragment besides its object."""


@attrs.define(eq=False)
class PartialMessage:
    """Incomplete message of one WebSocket. Set `address` before the first fragment."""

    budget: ReceiveBudget
    limits: ServerLimits
    timeouts: ServerTimeouts
    address: str = ""
    _size: int = attrs.field(default=0, init=False)
    _last_progress: float = attrs.field(default=0.0, init=False)
    _incomplete: trio.Event = attrs.field(factory=trio.Event, init=False)
    """Set while fragments are missing."""

    def add(self, fragment: str | bytes | bytearray, *, is_last: bool) -> CloseStatus | None:
        """Count a fragment; return the close status if a limit is exceeded."""
        size = sys.getsizeof(fragment) + _FRAGMENT_OVERHEAD
        self._size += size
        self.budget.add(self.address, size)
        over = self.budget.bytes > self.limits.body_bytes
        if over or self.budget.of[self.address] > self.limits.body_bytes_each:
            return TOO_MUCH
        if is_last:
            self._complete()
        else:
            self._last_progress = trio.current_time()
            self._incomplete.set()
        return None

    def done(self) -> None:
        """Release the budget: the message was delivered or dropped."""
        self.budget.add(self.address, -self._size)
        self._size = 0
        self._complete()

    async def watch(self, close: Callable[[CloseStatus], Awaitable[None]]) -> None:
        """Call `close` when the next fragment misses its deadline."""
        while True:
            incomplete = self._incomplete
            await incomplete.wait()
            while self._incomplete is incomplete:
                due = self._last_progress + self.timeouts.headers
                if trio.current_time() >= due:
                    await close(TOO_SLOW)
                    return
                await trio.sleep_until(due)

    def _complete(self) -> None:
        """Stop the deadline."""
        if self._incomplete.is_set():
            self._incomplete = trio.Event()
