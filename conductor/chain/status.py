"""The status of a chain, as `ps` shows it. Only reads, since another thread calls it."""

from __future__ import annotations

from typing import Any

import msgspec

from conductor.adapters.negotiated import Announced, announced_by_agent, announced_by_client
from conductor.chain.client_end import ClientEnd
from conductor.chain.client_turns import ClientTurns
from conductor.chain.startup_gate import StartupGate
from conductor.routing.component import Component
from conductor.tracing.recorder import TraceRecorder

__all__ = ["ChainStatus"]


class ChainStatus(msgspec.Struct, eq=False):
    """A chain for `control.running_chains`. `components` is the chain's list, which changes."""

    recorder: TraceRecorder | None
    client_end: ClientEnd
    components: list[Component]
    gate: StartupGate
    client_turns: ClientTurns | None

    def status(self) -> dict[str, Any]:
        """Client, agent, components, and running turns, with seconds since they began; as JSON."""
        components, client = list(self.components), self.client_end
        turns = [] if self.client_turns is None else self.client_turns.turns()
        agent = _name(announced_by_agent(self.gate.answer))
        if agent is None and components and components[-1].agent_port is None:
            agent = components[-1].name
        return {
            "name": "conductor" if self.recorder is None else self.recorder.chain,
            "mode": "agent" if client.role == "client" else "proxy",
            "client": _name(announced_by_client(self.gate.params)),
            "client_label": client.label,
            "sessions": client.sessions,
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
