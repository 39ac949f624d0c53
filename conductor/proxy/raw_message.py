"""What an observer, `@on("*")`, gets."""

from __future__ import annotations

from typing import Literal

import msgspec

__all__ = ["RawMessage"]


class RawMessage(msgspec.Struct, frozen=True):
    """A message as it arrived at the plugin, before anything is done with it."""

    kind: Literal["request", "notification", "response"]
    method: str
    """Of a response, the method of its request."""
    source: Literal["client", "agent"]
    """Where it comes from: "client" travels toward the agent."""
    payload: bytes | None
    """The params, result or error as raw JSON; `None` for params that are absent."""
    is_error: bool = False
    """Whether it is a response whose payload is an error object."""
    number: int = 0
    """The same for a request and its response, and for no other messages; 0 for notifications.

    A request that a handler of the same plugin forwards keeps its number. The response to a request
    that the plugin itself has sent has a number of its own."""
