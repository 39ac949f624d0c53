"""Tool calls that known agents make without a permission request, and which rules do not see.

The table is `agent_questions.yaml`: measured with real agents, each in one version, with the
settings of a fresh installation. It says nothing about an agent that is not in it. Pure.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Literal, TypeAlias

import attrs

__all__ = ["AgentQuestions", "agent_questions"]

TABLE: Final = Path(__file__).with_name("agent_questions.yaml")

CallKind: TypeAlias = Literal["read", "write", "command"]
_DONE: Final[Mapping[CallKind, str]] = {
    "read": "reads a file",
    "write": "writes a file",
    "command": "runs a command",
}


@attrs.frozen
class AgentQuestions:
    """Result of measuring one agent. `agent_questions.yaml` explains the fields."""

    agent: str
    version: str
    date: Any
    asks: Mapping[CallKind, bool | Literal["model"]]
    mode: str | None = None
    remedy: str | None = None
    then: Mapping[CallKind, bool | Literal["model"]] = attrs.field(factory=dict)

    @property
    def is_governed(self) -> bool:
        """Whether it asks before all calls that change something."""
        return all(self.asks.get(kind, True) is True for kind in ("write", "command"))

    def text(self) -> str | None:
        """Describe the calls that it makes without asking; `None` if it always asks."""
        never, by_model = self._kinds(False), self._kinds("model")
        parts = []
        if never:
            parts.append(f"does not ask before it {_listed(never)}")
        if by_model:
            parts.append(f"lets a model decide whether it asks before it {_listed(by_model)}")
        if not parts:
            return None
        mode = f" (mode `{self.mode}`)" if self.mode else ""
        default = f"with default settings{mode}"
        return (
            f"{self.agent} {self.version} {default} {', and '.join(parts)} (measured {self.date})"
        )

    def help(self) -> str | None:
        """Name the agent's setting with which it asks about more; `None` if none is known."""
        if self.remedy is None:
            return None
        now = [kind for kind, asked in self.then.items() if asked is True]
        return f"with {self.remedy} it asks before it {_listed(now)}"

    def _kinds(self, asked: object) -> list[CallKind]:
        return [kind for kind, value in self.asks.items() if value == asked]


@functools.cache
def agent_questions(agent: str) -> AgentQuestions | None:
    """Return the entry of an agent, by `agentInfo.name`."""
    import yaml

    entries: Sequence[Mapping[str, Any]] = yaml.safe_load(TABLE.read_text(encoding="utf-8"))
    return next((AgentQuestions(**each) for each in entries if each["agent"] == agent), None)


def _listed(kinds: Sequence[CallKind]) -> str:
    *first, last = (_DONE[kind] for kind in kinds)
    return f"{', '.join(first)} or {last}" if first else last
