"""Quirks of agents and clients, looked up by name and version in `quirks.yaml`."""

from __future__ import annotations

import fnmatch
import functools
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final, Literal, TypeAlias, get_args

import attrs
import yaml

__all__ = [
    "QUIRKS",
    "Quirk",
    "QuirkEntry",
    "load",
    "quirks_of",
    "table",
]

Quirk: TypeAlias = Literal[
    "early_updates",
    "echoed_protocol_version",
    "loose_set_ups",
    "missing_tool_call_id",
    "one_turn_at_a_time",
    "protocol_version_text",
    "unannounced_tool_calls",
    "unfinished_tool_calls",
]
QUIRKS: Final[frozenset[str]] = frozenset(get_args(Quirk))


@attrs.frozen
class QuirkEntry:
    """One entry of the table."""

    name: str
    quirks: list[str] = attrs.field(factory=list)
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
    """Return the quirks for an `agentInfo` or `clientInfo`; without one, those of the entry `*`."""
    name, version = (str((info or {}).get(key) or "") for key in ("name", "version"))
    return {quirk for entry in entries if entry.applies_to(name, version) for quirk in entry.quirks}


@functools.cache
def table() -> Mapping[str, list[dict[str, Any]]]:
    """Return the parsed `quirks.yaml`."""
    # `importlib.resources` would find it in a zip archive too, and takes 4 ms to import.
    text = Path(__file__).with_name("quirks.yaml").read_text(encoding="utf-8")
    read: Mapping[str, list[dict[str, Any]]] = yaml.safe_load(text)
    return read


def _number(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", version.partition("-")[0]))
