"""Waits for the earliest of some deadlines."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, Generic, Protocol, TypeVar

import trio

__all__ = ["NEVER", "Alarm", "Deadlines"]

NEVER: Final = float("inf")

DueT = TypeVar("DueT")
DueT_co = TypeVar("DueT_co", covariant=True)


class Deadlines(Protocol[DueT_co]):
    """Knows what is due, and when; times are in seconds of trio's clock."""

    def next_deadline(self) -> float:
        """When `due` may have something to say; infinite if never."""

    def due(self, now: float) -> Sequence[DueT_co]:
        """What is overdue."""

    def forget(self) -> None:
        """Drop all deadlines: the component is gone."""


class Alarm(Generic[DueT]):
    """Calls `on_due` with what `deadlines` says is overdue."""

    __slots__ = ("_awake_at", "_deadlines", "_earlier", "_on_due")

    def __init__(self, deadlines: Deadlines[DueT], on_due: Callable[[DueT], None]) -> None:
        self._deadlines = deadlines
        self._on_due = on_due
        self._earlier = trio.Event()
        self._awake_at = NEVER

    async def run(self) -> None:
        """Wait for deadlines, as long as the component's process lives."""
        deadlines = self._deadlines
        deadlines.forget()
        while True:
            self._awake_at = deadlines.next_deadline()
            self._earlier = trio.Event()
            with trio.move_on_at(self._awake_at):
                await self._earlier.wait()
            for due in deadlines.due(trio.current_time()):
                self._on_due(due)

    def look(self, deadline: float) -> None:
        """Wake if there is now something earlier to wait for; later is found out by waking up."""
        if deadline < self._awake_at:
            self._earlier.set()
