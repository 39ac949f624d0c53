"""Reports the handlers of an isolated plugin to the conductor, for its trace.

The chain of an isolated plugin has a `ReportingRecorder` instead of one that keeps what passes. It
remembers which request each handler has got, by its id on the connection, and sends the runs of
handlers that ended in one turn of the event loop as one notification `PLUGIN_INFO`, which the
conductor takes off the connection.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Literal, cast

import trio

from conductor.jsonrpc.in_flight import InFlightRequest
from conductor.jsonrpc.messages import Payload
from conductor.plugins.isolation import report_info
from conductor.plugins.plugin_port import PluginPort
from conductor.routing.stage import EVERY, ForwardRequest, Stage, StagedPort, StageMethod
from conductor.routing.trace import HandlerOutcome, Mark
from conductor.supervision.handler_reports import HandlerReport
from conductor.tracing.recorder import Entry, TraceRecorder

__all__ = ["ReportingRecorder"]


class _Arrival(Mark):
    """Stands for a request that the plugin has got."""

    request: int = 0
    """Its id on the connection; 0 for `initialize`."""


class _Arrivals(Stage):
    """Remembers the request that a port of the plugin is given, while the port has it."""

    __slots__ = ("_recorder",)

    name = "trace"
    sent: frozenset[str] = EVERY

    def __init__(self, recorder: ReportingRecorder) -> None:
        self._recorder = recorder

    def takes(self, kind: StageMethod, method: str) -> bool:
        return kind == "send_request"

    def send_request(
        self, forward: ForwardRequest, call: InFlightRequest, method: str, params: Payload | None
    ) -> None:
        number = 0 if method == "initialize" else cast("int", call.source_id)  # from a conductor
        self._recorder.current = _Arrival(0.0, request=number)
        forward(call, method, params)
        self._recorder.current = None


class ReportingRecorder(TraceRecorder):
    """Keeps nothing of what passes; `send_reports` sends which handlers have run."""

    def __init__(self) -> None:
        super().__init__("")
        self.add: Callable[[Entry], None] = _ignore
        self._handled: list[HandlerReport] = []
        self._has_reports = trio.Event()

    def trace(self, port: StagedPort, component: str, side: Literal["client", "agent"]) -> None:
        if isinstance(port, PluginPort):  # else it is at an end of the plugin's chain
            port.insert(_Arrivals(self))

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
        self._handled.append(
            HandlerReport(component, method, location, message.request, started, ended, outcome)
        )
        self._has_reports.set()

    def logged(self, level: str, event: str, fields: dict[str, Any]) -> None:
        """What the plugin logs is in the trace as lines of its stderr."""

    async def send_reports(self, notify: Callable[[str, bytes], Awaitable[None]]) -> None:
        """Send reports with `notify`, until cancelled."""
        while True:
            await self._has_reports.wait()
            self._has_reports = trio.Event()
            handled, self._handled = self._handled, []
            await notify(*report_info(handled))


def _ignore(entry: Entry) -> None:
    """Nothing is kept."""
