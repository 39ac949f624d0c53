"""A component as the header of a trace has it. Apart from the records: each start makes some."""

from __future__ import annotations

from typing import Literal

import msgspec

__all__ = ["TraceComponent"]


class TraceComponent(msgspec.Struct, frozen=True, omit_defaults=True):
    """One component of a traced chain."""

    name: str
    label: str
    """Its name in `from` and `to`: `Client`, `Proxy(0)`, `Proxy(1)`, …, `Agent`."""
    kind: Literal["client", "parent", "plugin", "process", "remote"]
    """"parent" is a conductor that this chain is a proxy of; "process" also an isolated plugin:
    its messages have no `cause`."""
    location: str | None = None
    """Place in the chain file, as `path:line:column`."""
