"""Capabilities: of an agent, in its answer to `initialize` of version 1 or 2, and of a client of
version 1, in its request. Pure.

A member of another type than the protocol's counts as absent, as the schema has it
(`x-deserialize-default-on-error`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

__all__ = [
    "PROMPT",
    "SESSION",
    "announce",
    "client_has",
    "has_capability",
    "has_member",
    "with_capability",
    "with_member",
]

SESSION: Mapping[int, tuple[str, ...]] = {
    1: ("agentCapabilities", "sessionCapabilities"),
    2: ("capabilities", "session"),
}
"""Where the capabilities of sessions are, by version."""
PROMPT: Mapping[int, tuple[str, ...]] = {
    1: ("agentCapabilities", "promptCapabilities"),
    2: ("capabilities", "session", "prompt"),
}
"""Where the kinds of content in prompts are, by version."""


def has_capability(result: Any, where: Mapping[int, tuple[str, ...]], name: str) -> bool:
    """Whether the answer announces the capability: it is neither absent nor `false` nor `null`."""
    return has_member(result, (*where[_version(result)], name))


def with_capability(
    result: dict[str, Any], where: Mapping[int, tuple[str, ...]], name: str, value: Any
) -> dict[str, Any]:
    """The answer with this capability and all else that it announces."""
    return with_member(result, (*where[_version(result)], name), value)


def client_has(request: dict[str, Any], *path: str) -> bool:
    """Whether the client announces it: it is neither absent nor `false` nor `null`."""
    return has_member(request, ("clientCapabilities", *path))


def announce(request: dict[str, Any], value: Any, *path: str) -> bool:
    """Announce a capability for a client that lacks it; returns whether it does."""
    lacks = not client_has(request, *path)
    if lacks:
        request.update(with_member(request, ("clientCapabilities", *path), value))
    return lacks


def has_member(holder: Any, path: tuple[str, ...]) -> bool:
    """Whether there is a value at the path that is neither `false` nor `null`."""
    value = holder
    for member in path:
        value = value.get(member) if isinstance(value, dict) else None
    return value is not None and value is not False


def with_member(holder: Any, path: tuple[str, ...], value: Any) -> dict[str, Any]:
    """The holder with this value at the path; other values than objects on the way are replaced."""
    members = holder if isinstance(holder, dict) else {}
    first, *rest = path
    return {
        **members,
        first: with_member(members.get(first), tuple(rest), value) if rest else value,
    }


def _version(result: Any) -> int:
    version = result.get("protocolVersion") if isinstance(result, dict) else None
    return 2 if version == 2 else 1
