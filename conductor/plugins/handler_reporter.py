"""Reports the handlers of a plugin behind a link to the conductor, for its trace.

The chain of the plugin (`isolate: true`, `on_failure: restart`) has a `ReportingRecorder` instead
of one that keeps what passes. It remembers which message each handler has got, by what the
conductor knows it by (`MessageKey`), and sends the runs of handlers that ended in one turn of the
event loop as one notification `PLUGIN_INFO`, which the conductor takes off the connection.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Literal, cast

import trio

from conductor.jsonrpc.in_flight import InFlightRequest
from conductor.jsonrpc.messages import Payload
from conductor.jsonrpc.notification_batch import NotificationBatch
from conductor.plugins.isolation import report_info
from conductor.plugins.plugin_port import PluginPort
from conductor.routing.stage import (
    EVERY,
    ForwardBatch,
    ForwardNotification,
    ForwardRequest,
    Stage,
    StagedPort,
)
from conductor.routing.trace import HandlerOutcome, Mark
from conductor.supervision.handler_reports import HandlerReport, MessageKey
from conductor.tracing.recorder import Entry, TraceRecorder

__all__ = ["ReportingRecorder"]


class _Arrival(Mark):
    """Stands for a message that the plugin has got."""

    key: MessageKey = ("request", 0)

    def part(self, index: int) -> Mark:
        kind, number = self.key
        return _Arrival(0.0, key=(kind, number + index))


class _Arrivals(Stage):
    """Remembers the message that a port of the plugin is given, while the port has it."""

    __slots__ = ("_number", "_recorder", "_side")

    name = "trace"
    sent: frozenset[str] = EVERY

    def __init__(self, recorder: ReportingRecorder, side: Literal["client", "agent"]) -> None:
        self._recorder = recorder
        self._side: Literal["client", "agent"] = side
        self._number = 0
        """Notifications that have come."""

    def send_request(
        self, forward: ForwardRequest, call: InFlightRequest, method: str, params: Payload | None
    ) -> None:
        number = 0 if method == "initialize" else cast("int", call.source_id)  # from a conductor
        self._recorder.current = _Arrival(0.0, key=("request", number))
        forward(call, method, params)
        self._recorder.current = None

    def send_notification(
        self, forward: ForwardNotification, method: str, params: Payload | None
    ) -> None:
        self._notified(1)
        forward(method, params)
        self._recorder.current = None

    def send_batch(self, forward: ForwardBatch, notifications: NotificationBatch) -> None:
        self._notified(notifications.count)
        forward(notifications)
        self._recorder.current = None

    def _notified(self, count: int) -> None:
        self._recorder.current = _Arrival(0.0, key=(self._side, self._number))
        self._number += count


class ReportingRecorder(TraceRecorder):
    """Keeps nothing of what passes; `send_reports` sends which handlers have run."""

    def __init__(
        self, chain: str, *, outer: TraceRecorder | None = None, reports_all: bool = True
    ) -> None:
        super().__init__(chain)
        self.add: Callable[[Entry], None] = _ignore
        self.outer = outer
        """The conductor's own `Tracer`, if the plugin runs in its process."""
        self.reports_all = reports_all
        """Whether handlers of notifications are reported: 6 µs each, which a flight recorder is not
        worth."""
        self._handled: list[HandlerReport] = []
        self._has_reports = trio.Event()

    def trace(self, port: StagedPort, component: str, side: Literal["client", "agent"]) -> None:
        if isinstance(port, PluginPort):  # else it is at an end of the plugin's chain
            port.insert(_Arrivals(self, side))

    def handler_ended(
        self,
        component: str,
        method: str,
        location: str,
        message: Mark,
        started: float,
        ended: float,
        outcome: HandlerOutcome,
    ) -> None:
        assert isinstance(message, _Arrival)
        key = message.key
        if not self.reports_all and outcome != "failed" and key[0] != "request":
            return
        self._handled.append(
            HandlerReport(component, method, location, key, started, ended, outcome)
        )
        self._has_reports.set()

    def logged(self, level: str, event: str, fields: dict[str, Any]) -> None:
        """A log event. The start and the end of this chain are those of the plugin; what an
        isolated plugin logs is in the trace as lines of its stderr."""
        if self.outer is not None and fields.get("component", "conductor") != "conductor":
            self.outer.logged(level, event, fields)

    async def send_reports(self, notify: Callable[[str, bytes], Awaitable[None]]) -> None:
        """Send reports with `notify`, until cancelled."""
        while True:
            await self._has_reports.wait()
            self._has_reports = trio.Event()
            handled, self._handled = self._handled, []
            await notify(*report_info(handled))


def _ignore(entry: Entry) -> None:
    """Nothing is kept."""
