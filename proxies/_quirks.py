"""Quirks of agents and clients: the table `quirks.yaml`, looked up by name and version."""

from __future__ import annotations

import fnmatch
import functools
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final, Literal, TypeAlias, get_args

import attrs
import yaml

__all__ = [
    "QUIRKS",
    "McpServers",
    "Quirk",
    "QuirkEntry",
    "load",
    "mcp_servers_of",
    "quirks_of",
    "table",
]

Quirk: TypeAlias = Literal[
    "early_updates",
    "echoed_protocol_version",
    "missing_tool_call_id",
    "one_turn_at_a_time",
    "protocol_version_text",
    "unannounced_tool_calls",
]
McpServers: TypeAlias = Literal["by_session", "one_per_name", "shared"]
QUIRKS: Final[frozenset[str]] = frozenset(get_args(Quirk))


@attrs.frozen
class QuirkEntry:
    """One entry of the table."""

    name: str
    quirks: list[str] = attrs.field(factory=list)
    mcp_servers: McpServers | None = None
    """How the agent keeps MCP servers; `None` if unknown."""
    since: str | None = None
    until: str | None = None

    def applies_to(self, name: str, version: str) -> bool:
        return (
            fnmatch.fnmatchcase(name.lower(), self.name.lower())
            and (self.since is None or _number(version) >= _number(self.since))
            and (self.until is None or _number(version) < _number(self.until))
        )


def load() -> dict[str, list[QuirkEntry]]:
    """Return the entries of the table, under `agents` and `clients`."""
    read = table()
    return {side: [QuirkEntry(**entry) for entry in read[side]] for side in ("agents", "clients")}


def quirks_of(entries: Iterable[QuirkEntry], info: Mapping[str, Any] | None) -> set[str]:
    """Return the quirks for an `agentInfo` or `clientInfo`; without one, those of all."""
    return {quirk for entry in _matching(entries, info) for quirk in entry.quirks}


def mcp_servers_of(
    entries: Iterable[QuirkEntry], info: Mapping[str, Any] | None
) -> McpServers | None:
    """Return how the agent with this `agentInfo` keeps MCP servers; `None` if unknown."""
    said = [entry.mcp_servers for entry in _matching(entries, info) if entry.mcp_servers]
    return said[-1] if said else None


def _matching(
    entries: Iterable[QuirkEntry], info: Mapping[str, Any] | None
) -> Iterator[QuirkEntry]:
    name, version = (str((info or {}).get(key) or "") for key in ("name", "version"))
    return (entry for entry in entries if entry.applies_to(name, version))


@functools.cache
def table() -> Mapping[str, list[dict[str, Any]]]:
    """Return the parsed `quirks.yaml`."""
    # `importlib.resources` would find it in a zip archive too, and takes 4 ms to import.
    text = Path(__file__).with_name("quirks.yaml").read_text(encoding="utf-8")
    read: Mapping[str, list[dict[str, Any]]] = yaml.safe_load(text)
    return read


def _number(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", version.partition("-")[0]))
