"""Timer that waits for the earliest of several deadlines."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Final, Generic, Protocol, TypeVar

import attrs
import trio

__all__ = ["NEVER", "DeadlineTimer", "Deadlines", "DueTimes"]

NEVER: Final = float("inf")

OverdueT = TypeVar("OverdueT")
OverdueT_co = TypeVar("OverdueT_co", covariant=True)


class Deadlines(Protocol[OverdueT_co]):
    """A set of deadlines, in seconds of trio's clock."""

    def next_deadline(self) -> float:
        """The earliest deadline; infinite if there is none."""

    def overdue(self, now: float) -> Iterable[OverdueT_co]:
        """Everything with a deadline at or before `now`."""

    def forget(self) -> None:
        """Drop all deadlines: the component is gone."""


class DueTimes(dict[OverdueT, float]):
    """Things with their deadlines; a thing that is overdue is dropped."""

    def next_deadline(self) -> float:
        return min(self.values(), default=NEVER)

    def overdue(self, now: float) -> Iterator[OverdueT]:
        """One after the other: what is done about one may drop or postpone others."""
        for each in [each for each, deadline in self.items() if deadline <= now]:
            if self.get(each, NEVER) <= now:
                del self[each]
                yield each

    def forget(self) -> None:
        self.clear()


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
