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

The oldest dialect is spoken only to a component whose chain file names it.
With no dialect left to try, the start fails, and the reason says what the component may be instead.
Any other error is the component's answer and is passed on to the predecessor.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, TypeAlias

import msgspec

from conductor.jsonrpc.messages import INVALID_REQUEST, METHOD_NOT_FOUND
from conductor.routing.envelope import DIALECTS, TRIED, Dialect

__all__ = ["FailStart", "Handshake", "NextStep", "SendInit"]


class SendInit(msgspec.Struct, frozen=True):
    """Send the initialization in the present dialect; with `in_new_process`, to a new process."""

    in_new_process: bool = False


class FailStart(msgspec.Struct, frozen=True):
    """The component cannot be initialized; `reason` is text for the user."""

    reason: str


NextStep: TypeAlias = SendInit | FailStart | None
"""The step after a reaction of the component; `None`: pass its answer on to the predecessor."""


class Handshake(msgspec.Struct, eq=False):
    """The attempts to initialize one component.

    An "agent" has one name and no dialect. If the chain file sets the `dialect`, no other one is
    tried.
    """

    role: Literal["proxy", "agent"]
    dialect: Dialect | None = None
    _untried: list[Dialect] = []

    def __post_init__(self) -> None:
        dialects: Sequence[Dialect] = TRIED if self.dialect is None else (self.dialect,)
        self._untried = list(dialects if self.role == "proxy" else ())
        self.dialect = self._untried.pop(0) if self._untried else None

    @property
    def method(self) -> str:
        """Method name of the initialization to send now."""
        return "initialize" if self.dialect is None else DIALECTS[self.dialect].initialize

    @property
    def may_retry(self) -> bool:
        """Whether another dialect is left to try."""
        return bool(self._untried)

    def answered_with_error(self, code: int, text: str) -> NextStep:
        """`text` is message and data of the error, searched for key words."""
        if code == METHOD_NOT_FOUND:
            return self._again(self._unknown(text))
        if code == INVALID_REQUEST and "version" not in text:
            return self._again(self._unknown(text), in_new_process=True)
        return None

    def answered_alone(self) -> NextStep:
        """The component answered with a result, but has not initialized its successor."""
        return FailStart(
            f"it answered `{self.method}` without having initialized its successor: is it an agent "
            "rather than a proxy?"
        )

    def echoed_to_successor(self) -> NextStep:
        """The component forwarded its own initialization to its successor: the name is unknown to
        it."""
        return self._again(
            f"it sent its own initialization on to its successor: it does not know `{self.method}`"
        )

    def echoed_to_predecessor(self, method: str) -> NextStep:
        """The component sent an initialization to its predecessor, outside of an envelope."""
        what = "what it was sent" if method == self.method else f"`{method}`"
        return FailStart(
            f"it sent {what} back instead of answering `{self.method}`: is it a program that "
            "speaks ACP?"
        )

    def closed_early(self) -> NextStep:
        """The component ended, or closed its output, before it answered."""
        return self._again("it ended during initialization", in_new_process=True)

    def _unknown(self, text: str) -> str:
        """Failure reason for a component that knows no dialect; `text` is its error."""
        if self.role == "agent":
            hint = "is it an agent, and does its command line ask it to speak ACP?"
        else:
            hint = "is it an agent rather than a proxy?"
        return f"it does not take `{self.method}`: {hint} It says: {text}"

    def _again(self, reason: str, *, in_new_process: bool = False) -> NextStep:
        """Try the next dialect; without one, fail for this reason."""
        if not self._untried:
            return FailStart(reason)
        self.dialect = self._untried.pop(0)
        return SendInit(in_new_process)
