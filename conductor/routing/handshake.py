"""How one component is initialised: which name, which dialect, what to make of its reactions. Pure.

A proxy's dialect is not known before it answers. `proxy/initialize` is said first; what comes back
from components that know only the other name, as seen in the wild (interop §1.6):

    an error -32601                     ask again in the other dialect, on the same connection
    an error -32600                     the component may be spent: start it again, other dialect
                                        (unless it is about the protocol version: a real answer)
    the init comes back in an envelope  (Rust) refuse the echo, ask again on the same connection
    it answers without ever having      it is no proxy
      initialised its successor
    the init comes back as it was sent  it is no ACP component (`cat`)
    it closes                           start it again, other dialect

With no dialect left to try, these are failures that say what the component may be instead. Any
other error is the component's real answer, and is passed on to the predecessor.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, TypeAlias

import attrs
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
    """The component answered its init with an error."""

    code: int
    text: str
    """Message and data of the error, for what they mention."""


class EchoedToSuccessor(msgspec.Struct, frozen=True):
    """The component sent our init to its successor: it did not know the name."""


class AnsweredAlone(msgspec.Struct, frozen=True):
    """The component answered with a result, but never initialised its successor."""


class EchoedToPredecessor(msgspec.Struct, frozen=True):
    """The component sent an init to its predecessor, outside of an envelope."""

    method: str


class ClosedEarly(msgspec.Struct, frozen=True):
    """The component ended, or closed its output, before it answered."""


Reaction: TypeAlias = (
    AnsweredWithError | EchoedToSuccessor | AnsweredAlone | EchoedToPredecessor | ClosedEarly
)


class SendInit(msgspec.Struct, frozen=True):
    """Send the init in this dialect; `in_new_process` means to a freshly started process."""

    dialect: Dialect
    in_new_process: bool = False


class PassAnswerOn(msgspec.Struct, frozen=True):
    """What came is the component's real answer."""


class FailStart(msgspec.Struct, frozen=True):
    """It cannot be initialised; the reason is for people."""

    reason: str


@attrs.define(eq=False, repr=False)
class Handshake:
    """The attempts to initialise one component.

    `role` "agent" has one name and no dialect. A `dialect` that the chain file gives is the only
    one tried.
    """

    role: Literal["proxy", "agent"]
    dialect: Dialect | None = None
    _untried: list[Dialect] = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        dialects: Sequence[Dialect] = DIALECTS if self.dialect is None else (self.dialect,)
        self._untried = list(dialects if self.role == "proxy" else ())
        self.dialect = self._untried.pop(0) if self._untried else None

    @property
    def method(self) -> str:
        """The name of the init as it is to be sent now."""
        return "initialize" if self.dialect is None else f"{self.dialect}/initialize"

    @property
    def may_retry(self) -> bool:
        """Whether there is another dialect to try."""
        return bool(self._untried)

    def after(self, event: Reaction) -> SendInit | PassAnswerOn | FailStart:
        """What to do about a reaction."""
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
        """For people: it does not take the init in any dialect; `text` is what it says."""
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
