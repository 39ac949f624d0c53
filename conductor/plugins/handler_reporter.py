"""Reports the handlers of a plugin behind a link to the conductor, for its trace.

The chain of the plugin (`isolate: true`, `on_failure: restart`) has a `ReportingRecorder` instead
of one that keeps what passes. It remembers which message each handler has got, by what the
conductor knows it by (`MessageKey`), and sends what happened in each turn of the event loop as one
notification `PLUGIN_INFO`, which the conductor takes off the connection.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from time import monotonic
from typing import Any, ClassVar, Final, Literal

import trio

from conductor.jsonrpc.in_flight import InFlightRequest
from conductor.jsonrpc.messages import Payload
from conductor.jsonrpc.notification_batch import NotificationBatch
from conductor.plugins.isolation import report_info
from conductor.routing.component import Component
from conductor.routing.traced_port import HandlerOutcome, Mark, TracedPort
from conductor.supervision.handler_reports import HandlerReport, LogReport, MessageKey
from conductor.tracing.recorder import Entry, TraceRecorder

__all__ = ["ReportingRecorder"]


_SIDES: Final = ("client", "agent")
"""Kinds of keys of notifications."""


class _Arrival(Mark):
    """Stands for a message that a component of the plugin's chain has got."""

    __slots__ = ("key", "method")

    def __init__(self, time: float, method: str, key: MessageKey | None) -> None:
        super().__init__(time)
        self.method = method
        self.key = key

    def part(self, index: int) -> Mark:
        if self.key is None:
            return self
        kind, number = self.key
        return _Arrival(self.time, self.method, (kind, number + index))


class _ArrivalPort(TracedPort):
    """Remembers the message that its port is given, while the port has it."""

    __slots__ = ()

    def request(self, call: InFlightRequest, method: str, params: Payload | None) -> None:
        number = 0 if method == "initialize" else call.source_id
        key = ("request", number) if isinstance(number, int) else None
        before = self._arrived(method, key)  # type: ignore[arg-type]
        try:
            self._port.request(call, method, params)
        finally:
            self.tracer.current = before

    def notify(self, method: str, params: Payload | None) -> None:
        before = self._arrived(method, self._numbered(1))
        try:
            self._port.notify(method, params)
        finally:
            self.tracer.current = before

    def notify_batch(self, notifications: NotificationBatch) -> None:
        key = self._numbered(notifications.count)
        before = self._arrived(notifications.method, key)
        try:
            self._port.notify_batch(notifications)
        finally:
            self.tracer.current = before

    def respond(self, call: InFlightRequest, result: Payload | None, error: Payload | None) -> None:
        before = self._arrived(call.method, ("response", call.target_id))
        try:
            self._port.respond(call, result, error)
        finally:
            self.tracer.current = before

    def _arrived(self, method: str, key: MessageKey | None) -> Mark | None:
        tracer = self.tracer
        assert isinstance(tracer, ReportingRecorder)
        before = tracer.current
        if not tracer.is_edge(self):  # the message of another of the plugin's components
            cause = tracer.handled() if before is None else before
            is_same = isinstance(cause, _Arrival) and cause.method == method
            key = cause.key if is_same else None  # type: ignore[union-attr]
        tracer.current = _Arrival(monotonic(), method, key)
        return before

    def _numbered(self, count: int) -> MessageKey | None:
        tracer = self.tracer
        assert isinstance(tracer, ReportingRecorder)
        if not tracer.is_edge(self):
            return None
        number = tracer.numbers[self.side]
        tracer.numbers[self.side] = number + count
        return self.side, number


class ReportingRecorder(TraceRecorder):
    """Keeps nothing of what passes; `send_reports` sends what handlers did."""

    port_types: ClassVar[tuple[type[TracedPort], type[TracedPort]]] = (_ArrivalPort, _ArrivalPort)

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
        self.numbers: dict[Literal["client", "agent"], int]
        """Notifications that have come from each side."""
        self._handled: list[HandlerReport] = []
        self._logged: list[LogReport] = []
        self._has_reports = trio.Event()
        self._edges: dict[Literal["client", "agent"], str] = {}

    def attach(self, components: Sequence[Component]) -> None:
        super().attach(components)
        self.numbers = {"client": 0, "agent": 0}
        self._edges = {"client": components[0].name, "agent": components[-1].name}

    def is_edge(self, port: TracedPort) -> bool:
        """Whether messages to a port come from outside of the plugin's chain."""
        return self._edges[port.side] == port.component

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
        key = message.key if isinstance(message, _Arrival) else None
        if not self.reports_all and outcome != "failed" and (key is None or key[0] in _SIDES):
            return
        times = message.time, started, ended
        self._handled.append(HandlerReport(component, method, location, key, *times, outcome))
        self._has_reports.set()

    def logged(self, level: str, event: str, fields: dict[str, Any]) -> None:
        """A log event: one about a message is reported. The others of an isolated plugin are in
        the trace as lines of its stderr."""
        name, message = str(fields.get("component", "conductor")), self.handled()
        if name == "conductor":  # the start and the end of this chain are those of the plugin
            return
        if isinstance(message, _Arrival):
            del fields["component"]
            self._logged.append(LogReport(name, level, event, fields, message.key, monotonic()))
            self._has_reports.set()
        elif self.outer is not None:
            self.outer.logged(level, event, fields)

    async def send_reports(self, notify: Callable[[str, bytes], Awaitable[None]]) -> None:
        """Send reports with `notify`, until cancelled."""
        while True:
            await self._has_reports.wait()
            self._has_reports = trio.Event()
            handled, self._handled = self._handled, []
            logged, self._logged = self._logged, []
            await notify(*report_info(handled, logged))


def _ignore(entry: Entry) -> None:
    """Nothing is kept."""
