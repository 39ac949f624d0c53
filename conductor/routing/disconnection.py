"""Stages of a link that has no connection, or whose component is not ready. Pure."""

from __future__ import annotations

from conductor.jsonrpc.in_flight import InFlightRequest
from conductor.jsonrpc.messages import Payload
from conductor.jsonrpc.notification_batch import NotificationBatch
from conductor.routing.failure_errors import FailureErrors, answer_of_gone
from conductor.routing.message_queue import MessageQueue, QueuedMessage
from conductor.routing.stage import EVERY, ForwardBatch, ForwardNotification, ForwardRequest, Stage

__all__ = ["Disconnected", "Hold"]


class Hold(Stage):
    """Keeps the messages for a component that is not ready, in order, until they are released."""

    __slots__ = ("_queue",)

    name = "hold"
    sent: frozenset[str] = EVERY

    def __init__(self, queue: MessageQueue) -> None:
        self._queue = queue

    def send_request(
        self, forward: ForwardRequest, call: InFlightRequest, method: str, params: Payload | None
    ) -> None:
        self._queue.append(QueuedMessage.copy_of(call, method, params, self.port))

    def send_notification(
        self, forward: ForwardNotification, method: str, params: Payload | None
    ) -> None:
        self._queue.append(QueuedMessage.copy_of(None, method, params, self.port))


class Disconnected(Stage):
    """Refuses requests to a component that is gone, with the errors of its failure.

    Notifications are dropped, unless the component still reads (`is_reading`).
    """

    __slots__ = ("errors", "is_reading")

    name = "disconnected"
    sent: frozenset[str] = EVERY

    def __init__(self, errors: FailureErrors, *, is_reading: bool = False) -> None:
        self.errors: FailureErrors = errors
        self.is_reading: bool = is_reading

    def send_request(
        self, forward: ForwardRequest, call: InFlightRequest, method: str, params: Payload | None
    ) -> None:
        error = self.errors.answer(method, delivered=False)
        self.port.answer(self, call, *answer_of_gone(method, error))

    def send_notification(
        self, forward: ForwardNotification, method: str, params: Payload | None
    ) -> None:
        if self.is_reading:
            forward(method, params)

    def send_batch(self, forward: ForwardBatch, notifications: NotificationBatch) -> None:
        if self.is_reading:
            forward(notifications)
