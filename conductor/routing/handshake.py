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

from conductor.messages import INVALID_REQUEST, METHOD_NOT_FOUND
from conductor.routing.envelope import DIALECTS, Dialect

__all__ = [
    "AnsweredAlone",
    "Ask",
    "Closed",
    "Echoed",
    "Fail",
    "Handshake",
    "Pass",
    "Refused",
    "SentBack",
]


class Refused(msgspec.Struct, frozen=True):
    """The component answered its init with an error."""

    code: int
    text: str
    """Message and data of the error, for what they mention."""


class Echoed(msgspec.Struct, frozen=True):
    """The component sent our init to its successor: it did not know the name."""


class AnsweredAlone(msgspec.Struct, frozen=True):
    """The component answered with a result, but never initialised its successor."""


class SentBack(msgspec.Struct, frozen=True):
    """The component sent an init to its predecessor, outside of an envelope."""

    method: str


class Closed(msgspec.Struct, frozen=True):
    """The component ended, or closed its output, before it answered."""


Event: TypeAlias = Refused | Echoed | AnsweredAlone | SentBack | Closed


class Ask(msgspec.Struct, frozen=True):
    """Send the init in this dialect; `anew` means to a freshly started process."""

    dialect: Dialect
    anew: bool = False


class Pass(msgspec.Struct, frozen=True):
    """What came is the component's real answer."""


class Fail(msgspec.Struct, frozen=True):
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
    _left: list[Dialect] = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        given: Sequence[Dialect] = DIALECTS if self.dialect is None else (self.dialect,)
        self._left = list(given if self.role == "proxy" else ())
        self.dialect = self._left.pop(0) if self._left else None

    @property
    def method(self) -> str:
        """The name of the init as it is to be sent now."""
        return "initialize" if self.dialect is None else f"{self.dialect}/initialize"

    @property
    def may_retry(self) -> bool:
        """Whether there is another dialect to try."""
        return bool(self._left)

    def after(self, event: Event) -> Ask | Pass | Fail:
        """What to do about a reaction."""
        match event:
            case Echoed():
                return self._next(
                    anew=False,
                    otherwise=Fail(
                        f"it sent its own initialization on to its successor: it does not know "
                        f"`{self.method}`"
                    ),
                )
            case Refused(code=code, text=text):
                if code == METHOD_NOT_FOUND:
                    return self._next(anew=False, otherwise=Fail(self._unknown(text)))
                if code == INVALID_REQUEST and "version" not in text:
                    return self._next(anew=True, otherwise=Fail(self._unknown(text)))
                return Pass()
            case AnsweredAlone():
                return Fail(
                    f"it answered `{self.method}` without having initialized its successor: is it "
                    "an agent rather than a proxy?"
                )
            case SentBack(method=method):
                what = "what it was sent" if method == self.method else f"`{method}`"
                return Fail(
                    f"it sent {what} back instead of answering `{self.method}`: is it a program "
                    "that speaks ACP?"
                )
            case Closed():
                return self._next(anew=True, otherwise=Fail("it ended during initialization"))

    def _unknown(self, text: str) -> str:
        """For people: it does not take the init in any dialect; `text` is what it says."""
        if self.role == "agent":
            hint = "is it an agent, and does its command line ask it to speak ACP?"
        else:
            hint = "is it an agent rather than a proxy?"
        return f"it does not take `{self.method}`: {hint} It says: {text}"

    def _next(self, *, anew: bool, otherwise: Pass | Fail) -> Ask | Pass | Fail:
        if self.role == "agent" or not self._left:
            return otherwise
        self.dialect = self._left.pop(0)
        return Ask(self.dialect, anew=anew)
