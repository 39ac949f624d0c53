"""The status of a chain, as `ps` shows it. Only reads, since another thread calls it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from conductor.adapters.negotiated import Announced, announced_by_agent, announced_by_client
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
    client, agent = _name(announced_by_client(initialize)), _name(announced_by_agent(answer))
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


def _name(of: Announced) -> str | None:
    return f"{of.name} {of.program_version}".rstrip() or None
