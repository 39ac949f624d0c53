"""Waits for the earliest of some deadlines."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, Generic, Protocol, TypeVar

import trio

__all__ = ["NEVER", "DeadlineTimer", "Deadlines"]

NEVER: Final = float("inf")

OverdueT = TypeVar("OverdueT")
OverdueT_co = TypeVar("OverdueT_co", covariant=True)


class Deadlines(Protocol[OverdueT_co]):
    """Knows what is due, and when; times are in seconds of trio's clock."""

    def next_deadline(self) -> float:
        """When `overdue` may have something to say; infinite if never."""

    def overdue(self, now: float) -> Sequence[OverdueT_co]:
        """What is overdue."""

    def forget(self) -> None:
        """Drop all deadlines: the component is gone."""


class DeadlineTimer(Generic[OverdueT]):
    """Calls `on_overdue` with what `deadlines` says is overdue."""

    __slots__ = ("_deadlines", "_earlier", "_on_overdue", "_wakes_at")

    def __init__(
        self, deadlines: Deadlines[OverdueT], on_overdue: Callable[[OverdueT], None]
    ) -> None:
        self._deadlines = deadlines
        self._on_overdue = on_overdue
        self._earlier = trio.Event()
        self._wakes_at = NEVER

    async def run(self) -> None:
        """Wait for deadlines, as long as the component's process lives."""
        deadlines = self._deadlines
        deadlines.forget()
        while True:
            self._wakes_at = deadlines.next_deadline()
            self._earlier = trio.Event()
            with trio.move_on_at(self._wakes_at):
                await self._earlier.wait()
            for overdue in deadlines.overdue(trio.current_time()):
                self._on_overdue(overdue)

    def reschedule(self, deadline: float) -> None:
        """Wake if there is now something earlier to wait for; later is found out by waking up."""
        if deadline < self._wakes_at:
            self._earlier.set()
