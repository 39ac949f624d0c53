"""Warning for a handler that holds its lane for more than 5 s, with file:line (lane rule 4)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import attrs
import trio

from conductor.log import Logger
from conductor.plugins.handler_call import HandlerCall
from conductor.plugins.lane import Lane

__all__ = ["SlowHandlerWarning"]

_WARN_AFTER: Final = 5.0


@attrs.define(eq=False, repr=False)
class SlowHandlerWarning:
    """Checks the lanes every 5 s while any is held; sleeps otherwise."""

    lanes: Sequence[Lane]
    holders: Mapping[Lane, HandlerCall]
    """The last handler that held each lane."""
    log: Logger
    active: trio.Event = attrs.field(factory=trio.Event, init=False)
    """The scheduler sets it when a lane is taken."""

    async def run(self) -> None:
        while True:
            await self.active.wait()
            self.active = trio.Event()
            while any(lane.held for lane in self.lanes):
                before = [lane.delivered for lane in self.lanes]
                await trio.sleep(_WARN_AFTER)
                for lane, delivered in zip(self.lanes, before, strict=True):
                    if lane.held and lane.delivered == delivered:
                        self._report(lane)

    def _report(self, lane: Lane) -> None:
        holder = self.holders.get(lane)
        location = holder.handler.location if holder is not None else "?"
        self.log.warning(
            "slow handler holds its lane",
            lane=lane.direction,
            seconds=_WARN_AFTER,
            handler=location,
            **({} if holder is None else holder.names()),
        )
