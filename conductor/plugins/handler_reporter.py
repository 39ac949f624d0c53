"""Reports the handlers of a plugin behind a link to the conductor, for its trace.

The chain of the plugin (`isolate: true`, `on_failure: restart`) has a `ReportingRecorder` instead
of one that keeps what passes. It remembers which message each handler has got, by what the
conductor knows it by (`MessageKey`), and sends the runs of handlers that ended in one turn of the
event loop as one notification `PLUGIN_INFO`, which the conductor takes off the connection.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, ClassVar, Literal, cast

import trio

from conductor.jsonrpc.in_flight import InFlightRequest
from conductor.jsonrpc.messages import Payload
from conductor.jsonrpc.notification_batch import NotificationBatch
from conductor.plugins.isolation import report_info
from conductor.plugins.plugin_port import PluginPort
from conductor.routing.traced_port import HandlerOutcome, Mark, TracedPort
from conductor.supervision.handler_reports import HandlerReport, MessageKey
from conductor.tracing.recorder import Entry, TraceRecorder

__all__ = ["ReportingRecorder"]


class _Arrival(Mark):
    """Stands for a message that the plugin has got."""

    __slots__ = ("key",)

    def __init__(self, key: MessageKey) -> None:
        super().__init__(0.0)
        self.key = key

    def part(self, index: int) -> Mark:
        kind, number = self.key
        return _Arrival((kind, number + index))


class _ArrivalPort(TracedPort):
    """Remembers the message that a port of the plugin is given, while the port has it."""

    __slots__ = ()

    def request(self, call: InFlightRequest, method: str, params: Payload | None) -> None:
        number = 0 if method == "initialize" else cast("int", call.source_id)  # from a conductor
        self._arrived(("request", number))
        self._port.request(call, method, params)
        self._arrived(None)

    def notify(self, method: str, params: Payload | None) -> None:
        self._arrived(self._numbered(1))
        self._port.notify(method, params)
        self._arrived(None)

    def notify_batch(self, notifications: NotificationBatch) -> None:
        self._arrived(self._numbered(notifications.count))
        self._port.notify_batch(notifications)
        self._arrived(None)

    def respond(self, call: InFlightRequest, result: Payload | None, error: Payload | None) -> None:
        self._port.respond(call, result, error)

    def _arrived(self, key: MessageKey | None) -> None:
        if isinstance(self._port, PluginPort):  # else it is at an end of the plugin's chain
            self.tracer.current = None if key is None else _Arrival(key)

    def _numbered(self, count: int) -> MessageKey:
        tracer = self.tracer
        assert isinstance(tracer, ReportingRecorder)
        number = tracer.numbers[self.side]
        if isinstance(self._port, PluginPort):
            tracer.numbers[self.side] = number + count
        return self.side, number


class ReportingRecorder(TraceRecorder):
    """Keeps nothing of what passes; `send_reports` sends which handlers have run."""

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
        self.numbers: dict[Literal["client", "agent"], int] = {"client": 0, "agent": 0}
        """Notifications that have come from each side."""
        self._handled: list[HandlerReport] = []
        self._has_reports = trio.Event()

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
