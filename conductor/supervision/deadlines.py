"""Things with deadlines, on one timer."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeVar

import trio

__all__ = ["NEVER", "SLOW", "Deadlines"]

NEVER: Final = float("inf")
SLOW: Final = 2.0
"""Seconds after which a start or a session set-up is slow."""

T = TypeVar("T")


class Deadlines(dict[T, float]):
    """Deadlines by what they are for, in seconds of trio's clock.

    `on_overdue` is called with each thing that is overdue, which is dropped before; what is done
    about one may drop or postpone others.
    """

    def __init__(self, on_overdue: Callable[[T], None]) -> None:
        super().__init__()
        self._on_overdue = on_overdue
        self._wakes_at = NEVER
        self._earlier = trio.Event()

    def __setitem__(self, what: T, deadline: float) -> None:
        super().__setitem__(what, deadline)
        if deadline < self._wakes_at:
            self._earlier.set()

    async def run(self) -> None:
        """Drop all deadlines, then wait for new ones until cancelled."""
        self.clear()
        while True:
            self._wakes_at = min(self.values(), default=NEVER)
            self._earlier = trio.Event()
            with trio.move_on_at(self._wakes_at):
                await self._earlier.wait()
            now = trio.current_time()
            for each in [each for each, deadline in self.items() if deadline <= now]:
                if self.get(each, NEVER) <= now:
                    del self[each]
                    self._on_overdue(each)
