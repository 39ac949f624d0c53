"""Observers of a link: protocols that `supervision` and `chain` implement. Pure.

A link calls an observer when a message passes, before the message is forwarded. Observers must not
wait or raise. Where none is set, a message costs one `is None` test per observer.
"""

from __future__ import annotations

from typing import Protocol

from conductor.jsonrpc.in_flight import InFlightRequest
from conductor.jsonrpc.messages import Payload
from conductor.jsonrpc.notification_batch import NotificationBatch

__all__ = ["InitializationHandler", "LinkObserver", "PromptTurnObserver"]


class InitializationHandler(Protocol):
    """Whoever initialises the component behind a link."""

    def begin(self, call: InFlightRequest, params: Payload | None) -> None:
        """The predecessor asks for the component's initialization."""

    def forwarded(self, call: InFlightRequest) -> None:
        """The component asks for its successor's initialization."""

    def echoed(self, method: str) -> None:
        """The component sent a proxy init to its successor."""

    def sent_back(self, method: str) -> None:
        """The component sent an init to its predecessor."""

    def successor_answered(self, call: InFlightRequest) -> None:
        """The component gets the answer to a call that it forwarded to its successor."""


class LinkObserver(Protocol):
    """Wants to see what passes a component's plain port; costs nothing where there is none."""

    def on_request_to(self, call: InFlightRequest, method: str, params: Payload | None) -> None:
        """The component gets a request."""

    def on_response_from(self, call: InFlightRequest) -> None:
        """The component answered."""

    def on_request_from(self, call: InFlightRequest, method: str, params: Payload | None) -> None:
        """The component asks."""

    def on_response_to(self, call: InFlightRequest) -> None:
        """The component gets an answer."""

    def on_notification_from(self, method: str, params: Payload | None) -> None:
        """The component notifies."""


class PromptTurnObserver(Protocol):
    """Wants to see the turns of a component, and what cancels them; no updates in version 1.

    For a client's link, the component is the chain behind it.
    """

    wants_updates: bool
    """Version 2: whether updates are shown, for the states among them."""

    def on_prompt(self, call: InFlightRequest, params: Payload | None) -> None:
        """The component gets a prompt."""

    def on_cancel(self, params: Payload | None) -> None:
        """The component gets `session/cancel`."""

    def on_cancel_request(self, call: InFlightRequest) -> None:
        """The component gets `$/cancel_request`."""

    def on_response_from(self, call: InFlightRequest) -> None:
        """The component answered, or was answered for."""

    def on_notifications(self, notifications: NotificationBatch) -> None:
        """The component sent several notifications of one method."""

    def on_notification(self, method: str, params: Payload | None) -> None:
        """The component sent a notification."""
