"""`RawMessage`: the message type of observers, `@on("*")`."""

from __future__ import annotations

from typing import Literal

import msgspec

__all__ = ["RawMessage"]


class RawMessage(msgspec.Struct, frozen=True):
    """A message as it arrived at the plugin, before its handlers run."""

    kind: Literal["request", "notification", "response"]
    method: str
    """For a response, the method of its request."""
    source: Literal["client", "agent"]
    """The sending side: a message from "client" travels toward the agent."""
    payload: bytes | None
    """Raw JSON of the params, result or error; `None` if there are no params."""
    is_error: bool = False
    """Whether it is a response with an error object as payload."""
    number: int = 0
    """Correlates a request with its response: equal for these two, unique otherwise; 0 for a
    notification.

    A request that a handler of the same plugin forwards keeps its number. The response to a request
    that the plugin itself sent has a new number."""
