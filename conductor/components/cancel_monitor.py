"""Tells `Cancellations` what passes a wire, and wakes when something is overdue.

Costs nothing per update in version 1. In version 2 the end of a turn is an update, so every update
is searched for one word; only those that contain it are decoded.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import msgspec
import trio

from conductor.components.alarm import Alarm
from conductor.components.cancellation import CancelDue, Cancellations
from conductor.connection.calls import Call
from conductor.connection.runs import UPDATE, Run
from conductor.frames import UNUSUAL
from conductor.messages import Payload
from conductor.routing.wire import Turns
from conductor.session_ids import session_of

__all__ = ["CancelMonitor"]

_STATE: Final = b"state_update"


class CancelMonitor(Turns):
    """Watches one component, or for the client the whole chain; `on_due` is called with what is
    overdue."""

    def __init__(
        self,
        timeout: float,
        speaks_version_2: Callable[[], bool],
        on_due: Callable[[CancelDue], None],
    ) -> None:
        self.reports_states = False
        self.cancellations = Cancellations(timeout)
        self._speaks_version_2 = speaks_version_2
        self._alarm = Alarm(self.cancellations, on_due)

    async def run(self) -> None:
        """Wait for deadlines, as long as the component lives."""
        await self._alarm.run()

    def on_prompt(self, call: Call, params: Payload | None) -> None:
        self.reports_states = self._speaks_version_2()
        self.cancellations.prompted(call, session_of(params))

    def on_cancel(self, params: Payload | None) -> None:
        session = session_of(params)
        if session is not None:
            self._alarm.look(self.cancellations.cancelled(session, trio.current_time()))

    def on_withdrawn(self, call: Call) -> None:
        if call.method != "initialize":  # has `start_timeout`
            self._alarm.look(self.cancellations.withdrawn(call, trio.current_time()))

    def on_answered(self, call: Call) -> None:
        self.cancellations.answered(call)

    def on_run(self, run: Run) -> None:
        if run.method == UPDATE and run.contains(_STATE):
            for each in run.params:
                self.on_notification(UPDATE, each)

    def on_notification(self, method: str, params: Payload | None) -> None:
        if method != UPDATE or params is None or _STATE not in bytes(params):
            return
        try:
            told = _decode(params)
        except UNUSUAL:
            return
        update = told.update
        if update.sessionUpdate == "state_update" and update.state is not None:
            self.cancellations.reported(told.sessionId, update.state)


class _Update(msgspec.Struct, gc=False):
    sessionUpdate: str
    state: str | None = None


class _Told(msgspec.Struct, gc=False):
    sessionId: str
    update: _Update


_decode: Final = msgspec.json.Decoder(_Told).decode
