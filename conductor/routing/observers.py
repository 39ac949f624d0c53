"""Observers: what only looks at the requests of a link, in one direction, and the stages that show
it what passes. Pure.

Observers are called in the order in which they were added, before a message is forwarded: one may
rely on what another one knows. They must not wait or raise.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar, Final

from conductor.acp import SESSION_CANCEL
from conductor.jsonrpc.in_flight import InFlightRequest
from conductor.jsonrpc.messages import Payload
from conductor.jsonrpc.notification_batch import SESSION_UPDATE, NotificationBatch
from conductor.routing.envelope import INIT_METHODS
from conductor.routing.stage import (
    EVERY,
    ForwardBatch,
    ForwardCancel,
    ForwardNotification,
    ForwardRequest,
    ForwardResponse,
    Stage,
    StageMethod,
)

__all__ = ["LinkObserver", "ReceivedRequests", "SentRequests"]

_HANDSHAKE: Final = frozenset({"initialize", *INIT_METHODS})
_NAMED: Final = _HANDSHAKE | {SESSION_CANCEL, SESSION_UPDATE}


class LinkObserver:
    """Base of observers of the requests in one direction of a link; the methods do nothing."""

    __slots__ = ()

    requests: ClassVar[frozenset[str]] = EVERY
    """Methods of the requests that it looks at."""
    wants_notifications: bool = False
    """Whether `on_notification` and `on_notifications` are called; with `requests` other than
    `EVERY`, for `session/update` only."""

    def added(self, changed: Callable[[], None]) -> None:
        """It was added; `changed` is to be called when `wants_notifications` changes."""

    def on_request(self, call: InFlightRequest, method: str, params: Payload | None) -> None:
        """A request is sent. Those of a handshake to a component are not shown."""

    def on_response(self, call: InFlightRequest) -> None:
        """The request was answered, by its receiver or in the receiver's place."""

    def on_cancel_request(self, call: InFlightRequest) -> None:
        """A `$/cancel_request` for this request is sent."""

    def on_session_cancel(self, params: Payload | None) -> None:
        """A `session/cancel` is sent, in the direction of the requests."""

    def on_notification(self, method: str, params: Payload | None) -> None:
        """A notification is sent in the opposite direction."""

    def on_notifications(self, notifications: NotificationBatch) -> None:
        """Several notifications of one method are sent in the opposite direction."""
        for each in notifications.params:
            self.on_notification(notifications.method, each)


class _Observation(Stage):
    """Shows observers the requests in one direction, and the notifications in the other one."""

    __slots__ = ("_answered", "_asked", "_observers", "received", "sent")

    name = "observers"

    _OPPOSITE: frozenset[StageMethod]
    """Notifications that come in the direction of the responses."""
    _HIDDEN: frozenset[str] = frozenset()
    """Requests that are not shown."""

    def __init__(self) -> None:
        self.sent: frozenset[str] = _NAMED
        self.received: frozenset[str] = _NAMED
        self._observers: list[LinkObserver] = []
        self._asked: list[Callable[[InFlightRequest, str, Payload | None], None]] = []
        self._answered: list[Callable[[InFlightRequest], None]] = []
        """The methods of those that look at requests, and at responses."""

    def add(self, observer: LinkObserver) -> None:
        self._observers.append(observer)
        if _overrides(observer, "on_request"):
            self._asked.append(observer.on_request)
        if _overrides(observer, "on_response"):
            self._answered.append(observer.on_response)
        seen = self.sent | observer.requests
        self.sent, self.received = seen, seen
        observer.added(self.port.changed)
        self.port.changed()

    def takes(self, kind: StageMethod, method: str) -> bool:
        if kind in self._OPPOSITE:
            return any(each.wants_notifications for each in self._observers)
        if kind.endswith(("notification", "batch")):
            return super().takes(kind, method) and method == SESSION_CANCEL
        return super().takes(kind, method) and method not in self._HIDDEN

    def _session_cancel(self, params: Payload | None) -> None:
        for each in self._observers:
            each.on_session_cancel(params)

    def _notification(self, method: str, params: Payload | None) -> None:
        for each in self._observers:
            if each.wants_notifications:
                each.on_notification(method, params)

    def _notifications(self, notifications: NotificationBatch) -> None:
        for each in self._observers:
            if each.wants_notifications:
                each.on_notifications(notifications)

    def _cancel(self, call: InFlightRequest) -> None:
        for each in self._observers:
            each.on_cancel_request(call)


class SentRequests(_Observation):
    """Shows observers the requests that a component gets from this neighbour."""

    __slots__ = ()

    _OPPOSITE: frozenset[StageMethod] = frozenset({"receive_notification", "receive_batch"})
    _HIDDEN: frozenset[str] = _HANDSHAKE  # has `start_timeout`

    def send_request(
        self, forward: ForwardRequest, call: InFlightRequest, method: str, params: Payload | None
    ) -> None:
        for each in self._asked:
            each(call, method, params)
        forward(call, method, params)

    def receive_response(
        self,
        forward: ForwardResponse,
        call: InFlightRequest,
        result: Payload | None,
        error: Payload | None,
    ) -> None:
        for each in self._answered:
            each(call)
        forward(call, result, error)

    def send_cancel(self, forward: ForwardCancel, call: InFlightRequest) -> None:
        self._cancel(call)
        forward(call)

    def send_notification(
        self, forward: ForwardNotification, method: str, params: Payload | None
    ) -> None:
        self._session_cancel(params)
        forward(method, params)

    def send_batch(self, forward: ForwardBatch, notifications: NotificationBatch) -> None:
        for params in notifications.params:
            self._session_cancel(params)
        forward(notifications)

    def receive_notification(
        self, forward: ForwardNotification, method: str, params: Payload | None
    ) -> None:
        self._notification(method, params)
        forward(method, params)

    def receive_batch(self, forward: ForwardBatch, notifications: NotificationBatch) -> None:
        self._notifications(notifications)
        forward(notifications)


class ReceivedRequests(_Observation):
    """Shows observers the requests that a component sends to this neighbour."""

    __slots__ = ()

    _OPPOSITE: frozenset[StageMethod] = frozenset({"send_notification", "send_batch"})

    def receive_request(
        self, forward: ForwardRequest, call: InFlightRequest, method: str, params: Payload | None
    ) -> None:
        for each in self._asked:
            each(call, method, params)
        forward(call, method, params)

    def send_response(
        self,
        forward: ForwardResponse,
        call: InFlightRequest,
        result: Payload | None,
        error: Payload | None,
    ) -> None:
        for each in self._answered:
            each(call)
        forward(call, result, error)

    def receive_cancel(self, forward: ForwardCancel, call: InFlightRequest) -> None:
        self._cancel(call)
        forward(call)

    def receive_notification(
        self, forward: ForwardNotification, method: str, params: Payload | None
    ) -> None:
        self._session_cancel(params)
        forward(method, params)

    def receive_batch(self, forward: ForwardBatch, notifications: NotificationBatch) -> None:
        for params in notifications.params:
            self._session_cancel(params)
        forward(notifications)

    def send_notification(
        self, forward: ForwardNotification, method: str, params: Payload | None
    ) -> None:
        self._notification(method, params)
        forward(method, params)

    def send_batch(self, forward: ForwardBatch, notifications: NotificationBatch) -> None:
        self._notifications(notifications)
        forward(notifications)


def _overrides(observer: LinkObserver, name: str) -> Any:
    return getattr(type(observer), name) is not getattr(LinkObserver, name)
