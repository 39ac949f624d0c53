"""Observers of a link: base class that `supervision` and `chain` implement. Pure.

A link calls its observers when a message passes, before the message is forwarded. Observers must
not wait or raise.
"""

from __future__ import annotations

from conductor.jsonrpc.in_flight import InFlightRequest
from conductor.jsonrpc.messages import Payload
from conductor.jsonrpc.notification_batch import NotificationBatch

__all__ = ["LinkObserver"]


class LinkObserver:
    """Base of observers of the requests in one direction of a link; the methods do nothing.

    As one of `Link.outgoing_observers`, it sees the requests that the peer is sent; as one of
    `Link.incoming_observers`, those that the peer sends.
    """

    __slots__ = ()

    wants_notifications: bool = False
    """Whether `on_notification` and `on_notifications` are called."""

    def on_request(self, call: InFlightRequest, method: str, params: Payload | None) -> None:
        """A request is sent. In the direction to the peer, those in envelopes are not shown."""

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
