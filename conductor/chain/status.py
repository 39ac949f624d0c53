"""The status of a chain, as `ps` shows it. Only reads, since another thread calls it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from conductor.adapters.negotiated import Announced, announced_by_agent, announced_by_client
from conductor.routing.component import Component

if TYPE_CHECKING:
    from conductor.chain.chain import Chain

__all__ = ["chain_status"]


def chain_status(chain: Chain, turns: Sequence[tuple[str, float]]) -> dict[str, Any]:
    """Client, agent, components, and running turns, with seconds since they began."""
    components, gate = list(chain.components), chain.startup_gate
    agent = _name(announced_by_agent(gate.answer))
    if agent is None and components and components[-1].agent_port is None:
        agent = components[-1].name
    return {
        "name": "conductor" if chain.recorder is None else chain.recorder.chain,
        "mode": chain.spec.mode,
        "client_label": chain.client_label,
        "sessions": chain.client_end.sessions,
        "client": _name(announced_by_client(gate.params)),
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
