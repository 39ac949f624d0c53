"""Feeds a `Watch` with what passes a wire, and wakes when something is due."""

from __future__ import annotations

from collections.abc import Callable

import attrs
import trio

from conductor.components.watch import NEVER, Due, Watch
from conductor.connection.calls import Call
from conductor.messages import Payload
from conductor.routing.wire import Observer, Wire

__all__ = ["Watching"]


@attrs.define(eq=False)
class Watching(Observer):
    """Watches one component while it runs; `on_due` is called with what is overdue."""

    wire: Wire
    watch: Watch
    on_due: Callable[[Due], None]
    _earlier: trio.Event = attrs.field(factory=trio.Event, init=False)
    _awake_at: float = attrs.field(default=NEVER, init=False)

    async def run(self) -> None:
        """Wait for deadlines, as long as the component's process lives."""
        self.watch.forget()
        while True:
            self._awake_at = self.watch.next_deadline()
            self._earlier = trio.Event()
            with trio.move_on_at(self._awake_at):
                await self._earlier.wait()
            for due in self.watch.due(trio.current_time()):
                self.on_due(due)

    def on_asked(self, call: Call, method: str, params: Payload | None) -> None:
        self._look(self.watch.asked(call, method, params, trio.current_time()))

    def on_answered(self, call: Call) -> None:
        self.watch.answered(call)

    def on_asks(self, call: Call, method: str, params: Payload | None) -> None:
        self.watch.asks(call, params, trio.current_time())

    def on_told(self, call: Call) -> None:
        self._look(self.watch.told(call, trio.current_time()))

    def on_heard(self, method: str, params: Payload | None) -> None:
        self._look(self.watch.heard(method, params, trio.current_time()))

    def _look(self, deadline: float) -> None:
        """Wake if there is now something earlier to wait for; later is found out by waking up."""
        if deadline < self._awake_at:
            self._earlier.set()
