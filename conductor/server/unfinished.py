"""The message that a WebSocket is receiving, until its last fragment is there.

It is counted with the bodies of HTTP requests (`Load`), in all and of one client, and its next
fragment has as long as the next part of a body. Counted is the memory that fragments take here: one
of a few bytes takes ten times as much.
"""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable
from typing import Final

import attrs
import trio

from conductor.server.bounds import Bounds, Patience
from conductor.server.exchange import Load

__all__ = ["TOO_LARGE", "TOO_MUCH", "TOO_SLOW", "Closing", "Unfinished"]

Closing = tuple[int, str]
"""Close code and reason."""
TOO_LARGE: Final[Closing] = (1009, "the message is too large")
TOO_MUCH: Final[Closing] = (1013, "too much is being received; try again later")
TOO_SLOW: Final[Closing] = (1008, "the rest of the message did not come")
_PER_FRAGMENT: Final = 16
"""What a fragment takes besides its object."""


@attrs.define(eq=False)
class Unfinished:
    """Of one WebSocket; `whose` is set before anything can be received."""

    load: Load
    bounds: Bounds
    patience: Patience
    whose: str = ""
    _size: int = attrs.field(default=0, init=False)
    _moved: float = attrs.field(default=0.0, init=False)
    _begun: trio.Event = attrs.field(factory=trio.Event, init=False)
    """Set while fragments are missing."""

    def add(self, fragment: str | bytes | bytearray, *, is_last: bool) -> Closing | None:
        """Count a fragment; why the WebSocket is to be closed, if it is."""
        size = sys.getsizeof(fragment) + _PER_FRAGMENT
        self._size += size
        self.load.add(self.whose, size)
        over = self.load.bytes > self.bounds.body_bytes
        if over or self.load.of[self.whose] > self.bounds.body_bytes_each:
            return TOO_MUCH
        if is_last:
            self._complete()
        else:
            self._moved = trio.current_time()
            self._begun.set()
        return None

    def done(self) -> None:
        """The message was handed on, or given up."""
        self.load.add(self.whose, -self._size)
        self._size = 0
        self._complete()

    async def watch(self, close: Callable[[Closing], Awaitable[None]]) -> None:
        """Call `close` when the next fragment does not come."""
        while True:
            begun = self._begun
            await begun.wait()
            while self._begun is begun:
                due = self._moved + self.patience.headers
                if trio.current_time() >= due:
                    await close(TOO_SLOW)
                    return
                await trio.sleep_until(due)

    def _complete(self) -> None:
        """Nothing is missing, for now."""
        if self._begun.is_set():
            self._begun = trio.Event()
