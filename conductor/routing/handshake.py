"""Handshake state of one component: method name and dialect of its initialization. Pure.

The dialect of a proxy is not known before it answers. `proxy/initialize` is sent first. Reactions
of existing components that implement only the other name, and what the conductor does:

    error -32601                        send again in the other dialect, on the same connection
    error -32600                        the process may be unusable: restart it, other dialect
                                        (unless about the protocol version: a final answer)
    init returned in an envelope        (Rust) refuse the echo, send again on the same connection
    result without having initialized   the component is not a proxy
      its successor
    init returned as it was sent        the component does not speak ACP (`cat`)
    connection closed                   restart it, other dialect

With no dialect left to try, the start fails, and the reason says what the component may be instead.
Any other error is the component's answer and is passed on to the predecessor.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, TypeAlias

import msgspec

from conductor.jsonrpc.messages import INVALID_REQUEST, METHOD_NOT_FOUND
from conductor.routing.envelope import DIALECTS, Dialect

__all__ = [
    "AnsweredAlone",
    "AnsweredWithError",
    "ClosedEarly",
    "EchoedToPredecessor",
    "EchoedToSuccessor",
    "FailStart",
    "Handshake",
    "PassAnswerOn",
    "SendInit",
]


class AnsweredWithError(msgspec.Struct, frozen=True):
    """The component answered the initialization with an error."""

    code: int
    text: str
    """Message and data of the error as text, searched for key words."""


class EchoedToSuccessor(msgspec.Struct, frozen=True):
    """The component forwarded its own initialization to its successor: the name is unknown to
    it."""


class AnsweredAlone(msgspec.Struct, frozen=True):
    """The component answered with a result, but has not initialized its successor."""


class EchoedToPredecessor(msgspec.Struct, frozen=True):
    """The component sent an initialization to its predecessor, outside of an envelope."""

    method: str


class ClosedEarly(msgspec.Struct, frozen=True):
    """The component ended, or closed its output, before it answered."""


Reaction: TypeAlias = (
    AnsweredWithError | EchoedToSuccessor | AnsweredAlone | EchoedToPredecessor | ClosedEarly
)


class SendInit(msgspec.Struct, frozen=True):
    """Send the initialization in this dialect; with `in_new_process`, to a new process."""

    dialect: Dialect
    in_new_process: bool = False


class PassAnswerOn(msgspec.Struct, frozen=True):
    """Pass the component's answer on to the predecessor."""


class FailStart(msgspec.Struct, frozen=True):
    """The component cannot be initialized; `reason` is text for the user."""

    reason: str


class Handshake(msgspec.Struct, eq=False):
    """The attempts to initialize one component.

    An "agent" has one name and no dialect. If the chain file sets the `dialect`, no other one is
    tried.
    """

    role: Literal["proxy", "agent"]
    dialect: Dialect | None = None
    _untried: list[Dialect] = []

    def __post_init__(self) -> None:
        dialects: Sequence[Dialect] = DIALECTS if self.dialect is None else (self.dialect,)
        self._untried = list(dialects if self.role == "proxy" else ())
        self.dialect = self._untried.pop(0) if self._untried else None

    @property
    def method(self) -> str:
        """Method name of the initialization to send now."""
        return "initialize" if self.dialect is None else f"{self.dialect}/initialize"

    @property
    def may_retry(self) -> bool:
        """Whether another dialect is left to try."""
        return bool(self._untried)

    def after(self, event: Reaction) -> SendInit | PassAnswerOn | FailStart:
        """The next step after a reaction of the component."""
        match event:
            case EchoedToSuccessor():
                return self._next(
                    in_new_process=False,
                    otherwise=FailStart(
                        f"it sent its own initialization on to its successor: it does not know "
                        f"`{self.method}`"
                    ),
                )
            case AnsweredWithError(code=code, text=text):
                if code == METHOD_NOT_FOUND:
                    return self._next(
                        in_new_process=False, otherwise=FailStart(self._unknown(text))
                    )
                if code == INVALID_REQUEST and "version" not in text:
                    return self._next(in_new_process=True, otherwise=FailStart(self._unknown(text)))
                return PassAnswerOn()
            case AnsweredAlone():
                return FailStart(
                    f"it answered `{self.method}` without having initialized its successor: is it "
                    "an agent rather than a proxy?"
                )
            case EchoedToPredecessor(method=method):
                what = "what it was sent" if method == self.method else f"`{method}`"
                return FailStart(
                    f"it sent {what} back instead of answering `{self.method}`: is it a program "
                    "that speaks ACP?"
                )
            case ClosedEarly():
                return self._next(
                    in_new_process=True, otherwise=FailStart("it ended during initialization")
                )

    def _unknown(self, text: str) -> str:
        """Failure reason for a component that knows no dialect; `text` is its error."""
        if self.role == "agent":
            hint = "is it an agent, and does its command line ask it to speak ACP?"
        else:
            hint = "is it an agent rather than a proxy?"
        return f"it does not take `{self.method}`: {hint} It says: {text}"

    def _next(
        self, *, in_new_process: bool, otherwise: PassAnswerOn | FailStart
    ) -> SendInit | PassAnswerOn | FailStart:
        if self.role == "agent" or not self._untried:
            return otherwise
        self.dialect = self._untried.pop(0)
        return SendInit(self.dialect, in_new_process=in_new_process)
