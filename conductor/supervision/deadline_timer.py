"""Timer that waits for the earliest of several deadlines."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, Generic, Protocol, TypeVar

import attrs
import trio

__all__ = ["NEVER", "DeadlineTimer", "Deadlines"]

NEVER: Final = float("inf")

OverdueT = TypeVar("OverdueT")
OverdueT_co = TypeVar("OverdueT_co", covariant=True)


class Deadlines(Protocol[OverdueT_co]):
    """A set of deadlines, in seconds of trio's clock."""

    def next_deadline(self) -> float:
        """The earliest deadline; infinite if there is none."""

    def overdue(self, now: float) -> Sequence[OverdueT_co]:
        """Everything with a deadline at or before `now`."""

    def forget(self) -> None:
        """Drop all deadlines: the component is gone."""


@attrs.define(eq=False, repr=False)
class DeadlineTimer(Generic[OverdueT]):
    """Calls `on_overdue` with each overdue item of `deadlines`."""

    _deadlines: Deadlines[OverdueT]
    _on_overdue: Callable[[OverdueT], None]
    _earlier: trio.Event = attrs.field(factory=trio.Event, init=False)
    _wakes_at: float = attrs.field(default=NEVER, init=False)

    async def run(self) -> None:
        """Forget all deadlines, then wait for new ones until cancelled."""
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
        """Wake `run` if this deadline is earlier than the one it waits for.

        A deadline that moved later needs no call: the timer wakes and finds nothing overdue.
        """
        if deadline < self._wakes_at:
            self._earlier.set()
