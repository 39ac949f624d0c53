"""Feed `CancelTimeouts` from a link, and wake at its deadlines.

Costs nothing per update in version 1. In version 2 the end of a turn is an update: every update is
searched for one word, and only those that contain it are decoded.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import msgspec
import trio

from conductor.acp import PROMPT, session_id_of
from conductor.json_values import decode_value
from conductor.jsonrpc.codec import DECODE_ERRORS
from conductor.jsonrpc.in_flight import InFlightRequest
from conductor.jsonrpc.messages import Payload
from conductor.jsonrpc.notification_batch import SESSION_UPDATE, NotificationBatch
from conductor.routing.observers import LinkObserver
from conductor.supervision.cancel_timeouts import CancelOverdue, CancelTimeouts
from conductor.supervision.deadline_timer import DeadlineTimer

__all__ = ["CancelMonitor"]

_STATE: Final = b"state_update"


class CancelMonitor(LinkObserver):
    """Monitor of the turns and requests of one component, or of the client with the whole chain.

    `timeout` is in seconds; `on_overdue` is called with each overdue turn or request.
    """

    def __init__(
        self,
        timeout: float,
        speaks_version_2: Callable[[], bool],
        on_overdue: Callable[[CancelOverdue], None],
    ) -> None:
        self.wants_notifications: bool = False
        self.timeouts: CancelTimeouts = CancelTimeouts(timeout)
        self._speaks_version_2 = speaks_version_2
        self._timer = DeadlineTimer(self.timeouts, on_overdue)

    async def run(self) -> None:
        """Wait for deadlines until cancelled."""
        await self._timer.run()

    def on_request(self, call: InFlightRequest, method: str, params: Payload | None) -> None:
        if method == PROMPT:
            self.wants_notifications = self._speaks_version_2()
            if call.session is None:
                call.session = session_id_of(params)
            self.timeouts.prompt_sent(call, call.session)

    def on_response(self, call: InFlightRequest) -> None:
        if call.method == PROMPT and self.wants_notifications and not call.refused:
            self.timeouts.prompt_accepted(call)
        if call.method == PROMPT or self.timeouts.cancelled_requests:
            self.timeouts.response_received(call)

    def on_cancel_request(self, call: InFlightRequest) -> None:
        if call.method != "initialize":  # has `start_timeout`
            self._timer.reschedule(self.timeouts.cancel_request_sent(call, trio.current_time()))

    def on_session_cancel(self, params: Payload | None) -> None:
        session = session_id_of(params)
        if session is not None:
            self._timer.reschedule(self.timeouts.cancel_sent(session, trio.current_time()))

    def on_notification(self, method: str, params: Payload | None) -> None:
        if method != SESSION_UPDATE or params is None or _STATE not in bytes(params):
            return
        try:
            decoded = decode_value(params, type=_UpdateParams)
        except DECODE_ERRORS:
            return
        update = decoded.update
        if update.sessionUpdate == "state_update" and update.state is not None:
            self.timeouts.state_reported(decoded.sessionId, update.state)

    def on_notifications(self, notifications: NotificationBatch) -> None:
        if notifications.method == SESSION_UPDATE and notifications.contains(_STATE):
            super().on_notifications(notifications)


class _StateUpdate(msgspec.Struct, gc=False):
    sessionUpdate: str
    state: str | None = None


class _UpdateParams(msgspec.Struct, gc=False):
    sessionId: str
    update: _StateUpdate
