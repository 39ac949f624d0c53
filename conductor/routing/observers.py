"""Observers: what only looks at the requests of a link, in one direction, and the stages that show
it what passes. Pure.

Observers are called in the order in which they were added, before a message is forwarded: one may
rely on what another one knows. They must not wait or raise.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import ClassVar, Final

from conductor.acp import SESSION_CANCEL
from conductor.jsonrpc.in_flight import InFlightRequest
from conductor.jsonrpc.messages import Payload
from conductor.jsonrpc.notification_batch import SESSION_UPDATE, NotificationBatch
from conductor.routing.envelope import INIT_METHODS
from conductor.routing.stage import (
    EVERY,
    ForwardNotification,
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

    __slots__ = ("_observers", "received", "sent")

    name = "observers"

    _SHOWN: Mapping[StageMethod, str]
    """The method of observers that gets the messages of a kind."""
    _HIDDEN: frozenset[str] = frozenset()
    """Requests that are not shown."""

    def __init__(self) -> None:
        self.sent: frozenset[str] = _NAMED
        self.received: frozenset[str] = _NAMED
        self._observers: list[LinkObserver] = []

    def add(self, observer: LinkObserver) -> None:
        self._observers.append(observer)
        self.sent = self.received = self.sent | observer.requests
        observer.added(self.port.changed)
        self.port.changed()

    def takes(self, kind: StageMethod, method: str) -> bool:
        return bool(self._shown(kind, method))

    def step(self, kind: StageMethod, method: str) -> Callable[..., None]:
        show = _SHOW.get(self._SHOWN[kind], _show)
        return partial(show, self._shown(kind, method))

    def _shown(self, kind: StageMethod, method: str) -> list[Callable[..., None]]:
        """The methods of the observers that look at messages of this kind and method."""
        match name := self._SHOWN.get(kind, ""):
            case "":
                seen = []
            case "on_notification" | "on_notifications":
                seen = [each for each in self._observers if each.wants_notifications]
            case "on_session_cancel":
                seen = self._observers if method == SESSION_CANCEL else []
            case _ if method in self._HIDDEN:
                seen = []
            case _:
                seen = [e for e in self._observers if e.requests >= EVERY or method in e.requests]
        return [getattr(each, name) for each in seen if _overrides(each, name)]


def _show(
    shown: Sequence[Callable[..., None]], forward: Callable[..., None], *message: object
) -> None:
    for each in shown:
        each(*message)
    forward(*message)


def _show_response(
    shown: Sequence[Callable[[InFlightRequest], None]],
    forward: ForwardResponse,
    call: InFlightRequest,
    result: Payload | None,
    error: Payload | None,
) -> None:
    for each in shown:
        each(call)
    forward(call, result, error)


def _show_session_cancel(
    shown: Sequence[Callable[[Payload | None], None]],
    forward: ForwardNotification,
    method: str,
    params: Payload | None,
) -> None:
    for each in shown:
        each(params)
    forward(method, params)


_SHOW: Final[Mapping[str, Callable[..., None]]] = {
    "on_response": _show_response,
    "on_session_cancel": _show_session_cancel,
}


class SentRequests(_Observation):
    """Shows observers the requests that a component gets from this neighbour."""

    __slots__ = ()

    _SHOWN: Mapping[StageMethod, str] = {
        "send_request": "on_request",
        "receive_response": "on_response",
        "send_cancel": "on_cancel_request",
        "send_notification": "on_session_cancel",
        "receive_notification": "on_notification",
        "receive_batch": "on_notifications",
    }
    _HIDDEN: frozenset[str] = _HANDSHAKE  # has `start_timeout`


class ReceivedRequests(_Observation):
    """Shows observers the requests that a component sends to this neighbour."""

    __slots__ = ()

    _SHOWN: Mapping[StageMethod, str] = {
        "receive_request": "on_request",
        "send_response": "on_response",
        "receive_cancel": "on_cancel_request",
        "receive_notification": "on_session_cancel",
        "send_notification": "on_notification",
        "send_batch": "on_notifications",
    }


def _overrides(observer: LinkObserver, name: str) -> bool:
    if name == "on_notifications":  # those of the base call `on_notification` with each
        return _overrides(observer, "on_notification")
    return getattr(type(observer), name) is not getattr(LinkObserver, name)
