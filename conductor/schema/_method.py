"""`Method`: description of a protocol method, without importing its types."""

from __future__ import annotations

from typing import Literal

import msgspec

__all__ = ["Method"]


class Method(msgspec.Struct, frozen=True):
    """One method of the protocol; the types are names in `conductor.schema.v1` or `.v2`."""

    name: str
    kind: Literal["request", "notification", "both"]
    source: Literal["client", "agent", "both", "proxy"]
    """The sender: "client" (toward the agent), "agent" (toward the client), or "proxy" (between a
    conductor and a proxy)."""
    params: str
    """The type of the params; those of the request if a notification has the same name."""
    result: str | None = None
    notification: str | None = None
    """The type of the notification's params, if a request has the same name."""
    unstable: bool = False
    earlier: bool = False
    """Only in the schema state of August 2026."""
