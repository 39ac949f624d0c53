"""Feed a `StallDetector` from a link, and wake at its deadlines."""

from __future__ import annotations

from collections.abc import Callable

import attrs
import trio

from conductor.jsonrpc.in_flight import InFlightRequest
from conductor.jsonrpc.messages import Payload
from conductor.routing.link import Link
from conductor.routing.observers import LinkObserver
from conductor.supervision.deadline_timer import DeadlineTimer
from conductor.supervision.stall_detector import Overdue, StallDetector

__all__ = ["StallMonitor"]


@attrs.define(eq=False)
class StallMonitor(LinkObserver):
    """Monitor of one component; `on_overdue` is called with each timeout and stalled turn. One of
    the observers after those that feed the turns of the detector."""

    wants_notifications = True

    detector: StallDetector
    on_overdue: Callable[[Overdue], None]
    _timer: DeadlineTimer[Overdue] = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self._timer = DeadlineTimer(self.detector, self.on_overdue)

    def observe(self, link: Link) -> None:
        """Observe the requests of both directions."""
        link.observe_sent(self)
        link.observe_received(_ComponentRequests(self.detector, self._timer))

    async def run(self) -> None:
        """Wait for deadlines until cancelled."""
        await self._timer.run()

    def on_request(self, call: InFlightRequest, method: str, params: Payload | None) -> None:
        self._timer.reschedule(self.detector.request_to(call, method, params, trio.current_time()))

    def on_response(self, call: InFlightRequest) -> None:
        self.detector.response_from(call)

    def on_notification(self, method: str, params: Payload | None) -> None:
        self._timer.reschedule(self.detector.notification_from(method, params, trio.current_time()))


@attrs.define(eq=False)
class _ComponentRequests(LinkObserver):
    """Requests of the component itself: while one is open, silence is not a stall."""

    detector: StallDetector
    timer: DeadlineTimer[Overdue]

    def on_request(self, call: InFlightRequest, method: str, params: Payload | None) -> None:
        self.detector.request_from(call, params, trio.current_time())

    def on_response(self, call: InFlightRequest) -> None:
        self.timer.reschedule(self.detector.response_to(call, trio.current_time()))
