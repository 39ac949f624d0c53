"""Errors for the requests to a failed component, and the stage that answers with them. Pure.

Most clients show only the `message` of an error. So the message of a prompt's error also says
whether the prompt is lost, what the conductor does next, and what the user can do.
"""

from __future__ import annotations

from typing import Final

import msgspec

from conductor.errors import ComponentError
from conductor.jsonrpc.in_flight import InFlightRequest
from conductor.jsonrpc.messages import (
    INTERNAL_ERROR,
    Payload,
    encode_error,
    exception_to_error,
    internal_error,
)
from conductor.jsonrpc.notification_batch import NotificationBatch
from conductor.routing.stage import EVERY, ForwardBatch, ForwardNotification, ForwardRequest, Stage
from conductor.secrets.masking import redact, redact_value

__all__ = ["CHAIN_ENDED", "Disconnected", "FailureErrors", "answer_of_gone", "prompt_advice"]

_PROMPT_CUT_OFF = "The prompt was cut off and is not repeated; part of it may have been done."
_PROMPT_UNDELIVERED = "The prompt did not reach the agent."


class FailureErrors(msgspec.Struct, frozen=True):
    """Wire errors (raw JSON of the `error` member) for requests to one failed component."""

    error: bytes
    prompt_cut_off: bytes
    prompt_undelivered: bytes

    @classmethod
    def of(cls, error: ComponentError) -> FailureErrors:
        """From a component's failure; `error.next` says what the conductor does next."""
        return cls(
            exception_to_error(error),
            _with_advice(error, prompt_advice(error, delivered=True)),
            _with_advice(error, prompt_advice(error, delivered=False)),
        )

    @classmethod
    def plain(cls, error: bytes) -> FailureErrors:
        """The same error for every request."""
        return cls(error, error, error)

    def answer(self, method: str, *, delivered: bool) -> bytes:
        """The error for a request; `delivered`: whether the component may have received it."""
        if method != "session/prompt":
            return self.error
        return self.prompt_cut_off if delivered else self.prompt_undelivered


CHAIN_ENDED: Final = FailureErrors.plain(
    encode_error(INTERNAL_ERROR, "The chain ended before this was answered")
)
"""For requests to components that were stopped."""


def answer_of_gone(method: str, error: bytes) -> tuple[bytes | None, bytes | None]:
    """Result and error of a request to a component that is gone.

    Its MCP connections are closed, so an `mcp/disconnect` succeeds: without this, the end of a
    chain in which MCP tools were used would count as an error.
    """
    return (b"{}", None) if method == "mcp/disconnect" else (None, error)


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


def prompt_advice(error: ComponentError, *, delivered: bool) -> str:
    """Text for the user: whether a prompt is lost, what happens next, and what to do."""
    todo = "look at what was done, then send it again" if delivered else "send it again"
    if error.loses_sessions:
        todo += ", in a new session: the agent cannot resume this one"
    if error.is_last:
        todo = f"start the agent again; {todo}"
    follows = f" What happens now: {error.next}." if error.next else ""
    return f"{_PROMPT_CUT_OFF if delivered else _PROMPT_UNDELIVERED}{follows} What to do: {todo}."


def _with_advice(error: ComponentError, advice: str) -> bytes:
    message, data = error.public_details()
    message = f"{message}. {advice}"
    return internal_error(redact(message), redact_value({**data, "details": message}))
