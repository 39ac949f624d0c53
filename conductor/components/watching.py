"""Feeds a `Watch` with what passes a wire, and wakes when something is due."""

from __future__ import annotations

from collections.abc import Callable

import attrs
import trio

from conductor.components.alarm import Alarm
from conductor.components.watch import Due, Watch
from conductor.connection.calls import Call
from conductor.messages import Payload
from conductor.routing.wire import Observer

__all__ = ["Watching"]


@attrs.define(eq=False)
class Watching(Observer):
    """Watches one component while it runs; `on_due` is called with what is overdue."""

    watch: Watch
    on_due: Callable[[Due], None]
    _alarm: Alarm[Due] = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self._alarm = Alarm(self.watch, self.on_due)

    async def run(self) -> None:
        """Wait for deadlines, as long as the component's process lives."""
        await self._alarm.run()

    def on_asked(self, call: Call, method: str, params: Payload | None) -> None:
        self._alarm.look(self.watch.asked(call, method, params, trio.current_time()))

    def on_answered(self, call: Call) -> None:
        self.watch.answered(call)

    def on_asks(self, call: Call, method: str, params: Payload | None) -> None:
        self.watch.asks(call, params, trio.current_time())

    def on_told(self, call: Call) -> None:
        self._alarm.look(self.watch.told(call, trio.current_time()))

    def on_heard(self, method: str, params: Payload | None) -> None:
        self._alarm.look(self.watch.heard(method, params, trio.current_time()))
