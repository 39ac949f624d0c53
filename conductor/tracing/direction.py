"""Direction of the messages of a trace, from the labels of sender and receiver. Pure."""

from __future__ import annotations

import re
from typing import Final, Literal, TypeAlias

from conductor.tracing.records import MessageRecord

__all__ = ["Direction", "direction"]

Direction: TypeAlias = Literal["agent", "client"]
_PROXY: Final = re.compile(r"Proxy\((\d+)\)")
_INSERTED: Final = 10**6
"""Place of a component without a label: it was inserted later, before the agent. Also that of the
conductor itself, when it sends to the client."""


def direction(message: MessageRecord) -> Direction:
    """The end of the chain that a message goes toward."""
    if message.from_ == "conductor":  # on behalf of a component that did not react
        return "client" if message.to == "Client" else "agent"
    if message.to == "conductor":
        return "client"
    return "agent" if _place(message.from_) < _place(message.to) else "client"


def _place(label: str) -> int:
    match label:
        case "Client":
            return -1
        case "Agent":
            return _INSERTED + 1
    found = _PROXY.fullmatch(label)
    return _INSERTED if found is None else min(int(found[1][:6]), _INSERTED - 1)
