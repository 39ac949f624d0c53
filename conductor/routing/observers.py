"""Observers: what only looks at the requests of a link, in one direction, and the stages that show
it what passes. Pure.

Observers are called in the order in which they were added, before a message is forwarded: one may
rely on what another one knows. They must not wait or raise.
"""

from __future__ import annotations

from conductor.acp import SESSION_CANCEL
from conductor.jsonrpc.in_flight import InFlightRequest
from conductor.jsonrpc.messages import Payload
from conductor.jsonrpc.notification_batch import NotificationBatch
from conductor.routing.envelope import INIT_METHODS
from conductor.routing.stage import (
    SendBatch,
    SendCancel,
    SendNotification,
    SendRequest,
    SendResponse,
    Stage,
)

__all__ = ["LinkObserver", "ReceivedRequests", "SentRequests"]


class LinkObserver:
    """Base of observers of the requests in one direction of a link; the methods do nothing."""

    __slots__ = ()

    wants_notifications: bool = False
    """Whether `on_notification` and `on_notifications` are called."""

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
    """Shows observers the requests in one direction."""

    __slots__ = ("observers",)

    name = "observers"
    sent = "every"
    received = "every"

    def __init__(self) -> None:
        self.observers: list[LinkObserver] = []


class SentRequests(_Observation):
    """Shows observers the requests that a component gets from this neighbour."""

    __slots__ = ()

    def send_request(
        self, forward: SendRequest, call: InFlightRequest, method: str, params: Payload | None
    ) -> None:
        if method != "initialize" and method not in INIT_METHODS:  # they have `start_timeout`
            for each in self.observers:
                each.on_request(call, method, params)
        forward(call, method, params)

    def receive_response(
        self,
        forward: SendResponse,
        call: InFlightRequest,
        result: Payload | None,
        error: Payload | None,
    ) -> None:
        for each in self.observers:
            each.on_response(call)
        forward(call, result, error)

    def send_cancel(self, forward: SendCancel, call: InFlightRequest) -> None:
        for each in self.observers:
            each.on_cancel_request(call)
        forward(call)

    def send_notification(
        self, forward: SendNotification, method: str, params: Payload | None
    ) -> None:
        if method == SESSION_CANCEL:
            for each in self.observers:
                each.on_session_cancel(params)
        forward(method, params)

    def send_batch(self, forward: SendBatch, notifications: NotificationBatch) -> None:
        if notifications.method == SESSION_CANCEL:
            for params in notifications.params:
                for each in self.observers:
                    each.on_session_cancel(params)
        forward(notifications)

    def receive_notification(
        self, forward: SendNotification, method: str, params: Payload | None
    ) -> None:
        for each in self.observers:
            if each.wants_notifications:
                each.on_notification(method, params)
        forward(method, params)

    def receive_batch(self, forward: SendBatch, notifications: NotificationBatch) -> None:
        for each in self.observers:
            if each.wants_notifications:
                each.on_notifications(notifications)
        forward(notifications)


class ReceivedRequests(_Observation):
    """Shows observers the requests that a component sends to this neighbour."""

    __slots__ = ()

    def receive_request(
        self, forward: SendRequest, call: InFlightRequest, method: str, params: Payload | None
    ) -> None:
        for each in self.observers:
            each.on_request(call, method, params)
        forward(call, method, params)

    def send_response(
        self,
        forward: SendResponse,
        call: InFlightRequest,
        result: Payload | None,
        error: Payload | None,
    ) -> None:
        for each in self.observers:
            each.on_response(call)
        forward(call, result, error)

    def receive_cancel(self, forward: SendCancel, call: InFlightRequest) -> None:
        for each in self.observers:
            each.on_cancel_request(call)
        forward(call)

    def receive_notification(
        self, forward: SendNotification, method: str, params: Payload | None
    ) -> None:
        if method == SESSION_CANCEL:
            for each in self.observers:
                each.on_session_cancel(params)
        forward(method, params)

    def receive_batch(self, forward: SendBatch, notifications: NotificationBatch) -> None:
        if notifications.method == SESSION_CANCEL:
            for params in notifications.params:
                for each in self.observers:
                    each.on_session_cancel(params)
        forward(notifications)

    def send_notification(
        self, forward: SendNotification, method: str, params: Payload | None
    ) -> None:
        for each in self.observers:
            if each.wants_notifications:
                each.on_notification(method, params)
        forward(method, params)

    def send_batch(self, forward: SendBatch, notifications: NotificationBatch) -> None:
        for each in self.observers:
            if each.wants_notifications:
                each.on_notifications(notifications)
        forward(notifications)
