"""Observers: what only looks at the requests of a link, in one direction, and the stages that show
it what passes. Pure.

Observers are called in the order in which they were added, before a message is forwarded: one may
rely on what another one knows. They must not wait or raise.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
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

    _STEPS: Mapping[StageMethod, str]
    """Its methods for the messages of each kind; `_notification` and `_notifications` are for those
    in the direction of the responses."""
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
        match self._STEPS.get(kind):
            case None:
                return False
            case "_notification" | "_notifications":
                return any(each.wants_notifications for each in self._observers)
            case "_session_cancel" | "_session_cancels":
                return method == SESSION_CANCEL
            case _:
                return method not in self._HIDDEN

    def step(self, kind: StageMethod) -> Callable[..., None]:
        found: Callable[..., None] = getattr(self, self._STEPS[kind])
        return found

    def _request(
        self, forward: ForwardRequest, call: InFlightRequest, method: str, params: Payload | None
    ) -> None:
        for each in self._asked:
            each(call, method, params)
        forward(call, method, params)

    def _response(
        self,
        forward: ForwardResponse,
        call: InFlightRequest,
        result: Payload | None,
        error: Payload | None,
    ) -> None:
        for each in self._answered:
            each(call)
        forward(call, result, error)

    def _cancel(self, forward: ForwardCancel, call: InFlightRequest) -> None:
        for each in self._observers:
            each.on_cancel_request(call)
        forward(call)

    def _session_cancel(
        self, forward: ForwardNotification, method: str, params: Payload | None
    ) -> None:
        for each in self._observers:
            each.on_session_cancel(params)
        forward(method, params)

    def _session_cancels(self, forward: ForwardBatch, notifications: NotificationBatch) -> None:
        for params in notifications.params:
            for each in self._observers:
                each.on_session_cancel(params)
        forward(notifications)

    def _notification(
        self, forward: ForwardNotification, method: str, params: Payload | None
    ) -> None:
        for each in self._observers:
            if each.wants_notifications:
                each.on_notification(method, params)
        forward(method, params)

    def _notifications(self, forward: ForwardBatch, notifications: NotificationBatch) -> None:
        for each in self._observers:
            if each.wants_notifications:
                each.on_notifications(notifications)
        forward(notifications)


class SentRequests(_Observation):
    """Shows observers the requests that a component gets from this neighbour."""

    __slots__ = ()

    _STEPS: Mapping[StageMethod, str] = {
        "send_request": "_request",
        "receive_response": "_response",
        "send_cancel": "_cancel",
        "send_notification": "_session_cancel",
        "send_batch": "_session_cancels",
        "receive_notification": "_notification",
        "receive_batch": "_notifications",
    }
    _HIDDEN: frozenset[str] = _HANDSHAKE  # has `start_timeout`


class ReceivedRequests(_Observation):
    """Shows observers the requests that a component sends to this neighbour."""

    __slots__ = ()

    _STEPS: Mapping[StageMethod, str] = {
        "receive_request": "_request",
        "send_response": "_response",
        "receive_cancel": "_cancel",
        "receive_notification": "_session_cancel",
        "receive_batch": "_session_cancels",
        "send_notification": "_notification",
        "send_batch": "_notifications",
    }


def _overrides(observer: LinkObserver, name: str) -> Any:
    return getattr(type(observer), name) is not getattr(LinkObserver, name)
