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
    """Initializes the component behind a link (`supervision.initialization`)."""

    def begin(self, call: InFlightRequest, params: Payload | None) -> None:
        """The predecessor sent `initialize` for the component."""

    def on_forwarded(self, call: InFlightRequest) -> None:
        """The component sent `initialize` to its successor."""

    def on_echoed(self, method: str) -> None:
        """The component sent a proxy initialization (`method`) to its successor."""

    def on_sent_back(self, method: str) -> None:
        """The component sent an initialization (`method`) to its predecessor."""

    def on_successor_response(self, call: InFlightRequest) -> None:
        """The successor answered the `initialize` that the component forwarded."""


class LinkObserver(Protocol):
    """Sees the messages of a component's plain port, and requests that the component sends."""

    def on_request_to(self, call: InFlightRequest, method: str, params: Payload | None) -> None:
        """A request is sent to the component."""

    def on_response_from(self, call: InFlightRequest) -> None:
        """The component responded."""

    def on_request_from(self, call: InFlightRequest, method: str, params: Payload | None) -> None:
        """The component sent a request."""

    def on_response_to(self, call: InFlightRequest) -> None:
        """A response is sent to the component."""

    def on_notification_from(self, method: str, params: Payload | None) -> None:
        """The component sent a notification."""


class PromptTurnObserver(Protocol):
    """Sees the prompt turns of a component and their cancellation.

    As `Link.client_turns`, it sees the turns of the client with the chain as a whole.
    """

    wants_updates: bool
    """Whether notifications are shown too: protocol version 2 reports the state of a turn in
    `session/update`, version 1 in the response to the prompt."""

    def on_prompt(self, call: InFlightRequest, params: Payload | None) -> None:
        """A `session/prompt` is sent to the component."""

    def on_cancel(self, params: Payload | None) -> None:
        """A `session/cancel` is sent to the component."""

    def on_cancel_request(self, call: InFlightRequest) -> None:
        """A `$/cancel_request` for this request is sent to the component."""

    def on_response_from(self, call: InFlightRequest) -> None:
        """The request was answered, by the component or in its place."""

    def on_notifications(self, notifications: NotificationBatch) -> None:
        """The component sent several notifications of one method."""

    def on_notification(self, method: str, params: Payload | None) -> None:
        """The component sent a notification."""
