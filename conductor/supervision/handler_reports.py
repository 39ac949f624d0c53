"""Receiver for handler reports of an isolated plugin, for the trace of the outer chain.

    chain of the plugin ─▶ notification `PLUGIN_INFO` ─▶ `HandlerReports` ─▶ tracer outside

The plugin runs in a chain of its own, in its process. Both ends of the connection know a request by
its id, so a report names the message without a mark in it. Handlers of notifications are not
reported. The report of a request that waited for a restart names no message.
`plugins.handler_reporter` is the other end.
"""

from __future__ import annotations

from typing import Final

import msgspec

from conductor.bounded_dict import BoundedDict
from conductor.jsonrpc.in_flight import InFlightRequest
from conductor.jsonrpc.messages import Payload
from conductor.routing.link import Link
from conductor.routing.stage import EVERY, ForwardRequest, Stage, StageMethod
from conductor.routing.trace import HandlerOutcome, Mark, Tracer

__all__ = ["HandlerReport", "HandlerReports"]

_KEPT: Final = 1024
"""Requests of which the record is known."""


class HandlerReport(msgspec.Struct, frozen=True, array_like=True):
    """The run of a handler. Times are in seconds of the monotonic clock, which processes share."""

    component: str
    method: str
    location: str
    request: int
    """Its id on the connection; 0 for `initialize`, which may be sent several times."""
    started: float
    ended: float
    outcome: HandlerOutcome


class HandlerReports(msgspec.Struct, eq=False):
    """Finds the records of the requests that reports are about. `tracer` is set when the chain is
    traced."""

    tracer: Tracer | None = None
    _marks: BoundedDict[int, Mark] = msgspec.field(default_factory=lambda: BoundedDict(_KEPT))

    def watch(self, link: Link) -> None:
        """Watch what is sent to the plugin."""
        for port in filter(None, (link.plain, link.enveloped)):
            port.insert(_SentRequests(self))

    def take(self, handled: tuple[HandlerReport, ...]) -> None:
        """Record what the plugin has reported."""
        if self.tracer is None:
            return
        for run in handled:
            mark = self._marks.get(run.request) or Mark(run.started)
            times = run.started, run.ended
            self.tracer.handler_ended(
                run.component, run.method, run.location, mark, *times, run.outcome
            )

    def sent(self, request: int) -> None:
        """A request is being sent."""
        if self.tracer is not None and (mark := self.tracer.current) is not None:
            self._marks[request] = mark


class _SentRequests(Stage):
    """Tells the reports which requests the plugin gets through a port of its link."""

    __slots__ = ("_reports",)

    name = "handler reports"
    sent: frozenset[str] = EVERY

    def __init__(self, reports: HandlerReports) -> None:
        self._reports = reports

    def takes(self, kind: StageMethod, method: str) -> bool:
        return kind == "send_request"

    def send_request(
        self, forward: ForwardRequest, call: InFlightRequest, method: str, params: Payload | None
    ) -> None:
        forward(call, method, params)
        if method == "initialize":
            self._reports.sent(0)
        elif call.target is self.port:
            self._reports.sent(call.target_id)
