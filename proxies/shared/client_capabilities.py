"""Capabilities in a client's `initialize`, in protocol version 1. Pure.

A member of another type than the protocol's counts as absent, as the schema has it
(`x-deserialize-default-on-error`).
"""

from __future__ import annotations

from typing import Any

from proxies.shared.agent_capabilities import has_member, with_member

__all__ = ["announce", "client_has"]

_HOLDER = "clientCapabilities"


def client_has(request: dict[str, Any], *path: str) -> bool:
    """Whether the client announces it: it is neither absent nor `false` nor `null`."""
    return has_member(request, (_HOLDER, *path))


def announce(request: dict[str, Any], value: Any, *path: str) -> None:
    """Put this capability into the request, beside what the client announces."""
    request.update(with_member(request, (_HOLDER, *path), value))
