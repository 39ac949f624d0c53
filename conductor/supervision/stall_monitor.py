"""Watch a link for requests that exceed `request_timeout`, and feed a `StallDetector`."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import attrs
import trio

from conductor.jsonrpc.in_flight import InFlightRequest
from conductor.jsonrpc.messages import Payload
from conductor.routing.link import Link
from conductor.routing.observers import LinkObserver
from conductor.supervision.deadlines import NEVER, Deadlines
from conductor.supervision.stall_detector import StallDetector, StalledTurn

__all__ = ["StallMonitor"]


@attrs.define(eq=False)
class StallMonitor(LinkObserver):
    """Monitor of one component; `on_timeout` is called with each request that takes too long,
    `on_stall` with each stalled turn. One of the observers after those that feed the turns of the
    detector."""

    wants_notifications = True

    detector: StallDetector
    request_timeout: Mapping[str, float]
    on_timeout: Callable[[InFlightRequest], None]
    on_stall: Callable[[StalledTurn], None]
    _due: Deadlines[InFlightRequest | None] = attrs.field(init=False)
    """Of requests, and `None` for the next silence."""

    def __attrs_post_init__(self) -> None:
        self._due = Deadlines(self._on_overdue)

    def observe(self, link: Link) -> None:
        """Observe the requests of both directions."""
        link.observe_sent(self)
        link.observe_received(_ComponentRequests(self))

    async def run(self) -> None:
        """Wait for deadlines until cancelled."""
        self.detector.forget()
        await self._due.run()

    def expect_silence(self, deadline: float) -> None:
        """Look for stalled turns at this time."""
        if deadline < self._due.get(None, NEVER):
            self._due[None] = deadline

    def on_request(self, call: InFlightRequest, method: str, params: Payload | None) -> None:
        now = trio.current_time()
        if (seconds := self.request_timeout.get(method)) is not None:
            self._due[call] = now + seconds
        self.expect_silence(self.detector.request_to(call, now))

    def on_response(self, call: InFlightRequest) -> None:
        self._due.pop(call, None)
        self.detector.response_from(call)

    def on_notification(self, method: str, params: Payload | None) -> None:
        self.expect_silence(self.detector.notification_from(method, params, trio.current_time()))

    def _on_overdue(self, call: InFlightRequest | None) -> None:
        if call is not None:
            self.on_timeout(call)
            return
        for turn in self.detector.overdue(trio.current_time()):
            self.on_stall(turn)
        self.expect_silence(self.detector.next_deadline())


@attrs.define(eq=False)
class _ComponentRequests(LinkObserver):
    """Requests of the component itself: while one is open, silence is not a stall."""

    monitor: StallMonitor

    def on_request(self, call: InFlightRequest, method: str, params: Payload | None) -> None:
        self.monitor.detector.request_from(call, params, trio.current_time())

    def on_response(self, call: InFlightRequest) -> None:
        monitor = self.monitor
        monitor.expect_silence(monitor.detector.response_to(call, trio.current_time()))
