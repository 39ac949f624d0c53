"""Receiver for handler reports of a plugin behind a link, for the trace of the outer chain.

    chain of the plugin ─▶ notification `PLUGIN_INFO` ─▶ `HandlerReports` ─▶ tracer outside

The plugin runs in a chain of its own, in its process (`isolate: true`) or in this one
(`on_failure: restart`). Both ends of the connection know a request by its id, and a notification by
its number, counted for each connection and side; so a report names the message without a mark in
it. Messages that waited for a restart, and notifications further back than `_KEPT`, are not found:
their reports name no message. `plugins.handler_reporter` is the other end.
"""

from __future__ import annotations

from collections import deque
from typing import Final, Literal, TypeAlias

import msgspec

from conductor.bounded_dict import BoundedDict
from conductor.jsonrpc.connection import Connection
from conductor.jsonrpc.in_flight import InFlightRequest
from conductor.jsonrpc.messages import Payload
from conductor.jsonrpc.notification_batch import NotificationBatch
from conductor.routing.link import Link
from conductor.routing.stage import EVERY, ForwardBatch, ForwardNotification, ForwardRequest, Stage
from conductor.routing.trace import HandlerOutcome, Mark, Tracer

__all__ = ["HandlerReport", "HandlerReports", "MessageKey"]

_KEPT: Final = 1024
"""Requests, and runs of notifications, of which the record is known."""
_Side: TypeAlias = Literal["client", "agent"]
MessageKey: TypeAlias = tuple[Literal["request", "client", "agent"], int]
"""A request with its id on the connection; or a notification from this side, with its number.
`initialize` may be sent several times, and has the number 0."""


class HandlerReport(msgspec.Struct, frozen=True, array_like=True):
    """The run of a handler. Times are in seconds of the monotonic clock, which processes share."""

    component: str
    method: str
    location: str
    message: MessageKey
    started: float
    ended: float
    outcome: HandlerOutcome


class HandlerReports(msgspec.Struct, eq=False):
    """Finds the records of the messages that reports are about. `tracer` is set when the chain is
    traced."""

    tracer: Tracer | None = None
    _calls: BoundedDict[MessageKey, Mark] = msgspec.field(
        default_factory=lambda: BoundedDict(_KEPT)
    )
    _runs: dict[_Side, deque[tuple[int, int, Mark]]] = msgspec.field(default_factory=dict)
    """Runs of notifications: number of the first, length, mark."""
    _counts: dict[_Side, int] = msgspec.field(default_factory=dict)
    _connection: Connection | None = None

    def watch(self, link: Link) -> None:
        """Watch what is sent to the plugin."""
        link.plain.insert(_SentMessages(link, self, "client"))
        if link.enveloped is not None:
            link.enveloped.insert(_SentMessages(link, self, "agent"))

    def take(self, handled: tuple[HandlerReport, ...]) -> None:
        """Record what the plugin has reported."""
        if self.tracer is None:
            return
        for run in handled:
            mark = self._mark(run.message) or Mark(run.started)
            times = run.started, run.ended
            self.tracer.handler_ended(
                run.component, run.method, run.location, mark, *times, run.outcome
            )

    def sent(self, key: MessageKey) -> None:
        """A request is being sent."""
        if self.tracer is not None and (mark := self.tracer.current) is not None:
            self._calls[key] = mark

    def notified(self, connection: Connection | None, side: _Side, count: int) -> None:
        """Notifications are being sent from this side."""
        if connection is not self._connection:
            self._connection = connection
            self._counts.clear()
            self._runs.clear()
        first = self._counts.get(side, 0)
        self._counts[side] = first + count
        if self.tracer is not None and (mark := self.tracer.current) is not None:
            runs = self._runs.setdefault(side, deque(maxlen=_KEPT))
            runs.append((first, count, mark))

    def _mark(self, key: MessageKey) -> Mark | None:
        """The message that a key stands for, if it is still known."""
        kind, number = key
        if kind == "request":
            return self._calls.get(key)
        for first, count, mark in reversed(self._runs.get(kind, ())):
            if first <= number:
                return mark.part(number - first) if number < first + count else None
        return None


class _SentMessages(Stage):
    """Tells the reports which messages the plugin gets through a port of its link."""

    __slots__ = ("_link", "_reports", "_side")

    name = "handler reports"
    sent: frozenset[str] = EVERY

    def __init__(self, link: Link, reports: HandlerReports, side: _Side) -> None:
        self._link = link
        self._reports = reports
        self._side: _Side = side

    def send_request(
        self, forward: ForwardRequest, call: InFlightRequest, method: str, params: Payload | None
    ) -> None:
        forward(call, method, params)
        if method == "initialize":
            self._reports.sent(("request", 0))
        elif call.target is self.port:
            self._reports.sent(("request", call.target_id))

    def send_notification(
        self, forward: ForwardNotification, method: str, params: Payload | None
    ) -> None:
        self._reports.notified(self._link.connection, self._side, 1)
        forward(method, params)

    def send_batch(self, forward: ForwardBatch, notifications: NotificationBatch) -> None:
        self._reports.notified(self._link.connection, self._side, notifications.count)
        forward(notifications)
