"""The status of a chain, as `ps` shows it. Only reads, since another thread calls it."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from conductor.json_values import decode_value
from conductor.routing.component import Component

__all__ = ["chain_status"]


def chain_status(
    components: Sequence[Component],
    initialize: bytes | None,
    answer: bytes,
    turns: Sequence[tuple[str, float]],
) -> dict[str, Any]:
    """Client, agent, components, and running turns, with seconds since they began.

    `initialize` and `answer` are the params of the client and the result.
    """
    client, agent = _name(initialize, "clientInfo"), _name(answer, "agentInfo")
    if agent is None and components and components[-1].agent_port is None:
        agent = components[-1].name
    return {
        "client": client,
        "agent": agent,
        "components": [_component(each) for each in components],
        "turns": [{"session": name, "seconds": round(seconds, 3)} for name, seconds in turns],
    }


def _component(component: Component) -> dict[str, Any]:
    return {
        "name": component.name,
        "kind": component.kind,
        "pid": getattr(component, "pid", None),
        "state": getattr(component, "state", "running"),
        "restarts": getattr(component, "restarts", 0),
    }


def _name(payload: bytes | None, member: str) -> str | None:
    """Name and version of an implementation in an `initialize` message; version 2 has `info`."""
    with suppress(ValueError):
        info = decode_value(payload or b"null")
        info = info.get(member, info.get("info")) if isinstance(info, dict) else None
        if isinstance(info, dict) and isinstance(info.get("name"), str):
            version = info.get("version")
            return f"{info['name']} {version}" if isinstance(version, str) else str(info["name"])
    return None
