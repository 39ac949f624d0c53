"""Decide which components of a chain a session gets (`when:`). Pure but for symbolic links.

All keys of a `when:` must hold; of the values of one key, one must. Names of clients and agents are
shell patterns, in any case. `cwd` is a pattern for the directory or one above it; `**` stands for
any number of directories; links are followed in both. A capability is a path in the client's
capabilities, `fs.writeTextFile`; it holds unless it is missing, `false` or `null`. `env` is a
variable that is set, or NAME=VALUE.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any, Final

import msgspec

from conductor.chainfile.model import ChainFile, ComponentSpec
from conductor.directories import directory_spellings, glob_spellings
from conductor.json_values import decode_value

__all__ = [
    "Facts",
    "agent_names",
    "client_facts",
    "fits_an_agent",
    "names_of_agent",
    "unmet_conditions",
]


class Facts(msgspec.Struct, frozen=True):
    """Input of conditions. While `client` is `None`, the client is not known yet, and conditions
    about it hold."""

    environ: Mapping[str, str]
    cwd: str | None = None
    """The session's directory, absolute."""
    agents: frozenset[str] = frozenset()
    """Names of the chain's agent: in the file, in the registry, and of its command."""
    client: str | None = None
    """Name of the client; empty if it has not told it."""
    capabilities: Any = None
    """The capabilities of the client, decoded."""


def client_facts(initialize: bytes | None, facts: Facts) -> Facts:
    """The facts with those of the raw params of the client's `initialize`."""
    try:
        params = decode_value(initialize or b"{}")
    except ValueError:
        params = {}
    params = params if isinstance(params, dict) else {}
    info = params.get("clientInfo", params.get("info"))
    name = info.get("name") if isinstance(info, dict) else None
    capabilities = params.get("clientCapabilities", params.get("capabilities"))
    return msgspec.structs.replace(
        facts, client=name if isinstance(name, str) else "", capabilities=capabilities
    )


def agent_names(chain: ChainFile) -> frozenset[str]:
    """The names by which a condition may mean the chain's agent."""
    return frozenset() if chain.agent is None else names_of_agent(chain.flat()[-1])


def names_of_agent(agent: ComponentSpec) -> frozenset[str]:
    """The names by which a condition may mean this agent."""
    return agent.program_names | {agent.name.rpartition("/")[2]}


def unmet_conditions(specs: Sequence[ComponentSpec], facts: Facts) -> dict[str, str]:
    """For each component that is left out, by name, the first condition that does not hold."""
    found = {spec.name: _unmet_condition(spec, facts) for spec in specs if spec.when}
    return {name: text for name, text in found.items() if text is not None}


def _unmet_condition(spec: ComponentSpec, facts: Facts) -> str | None:
    """The first condition of a component that does not hold: `client: zed`."""
    for when in spec.when:
        for key, holds in _CONDITIONS.items():
            values: Sequence[str] = getattr(when, key)
            if values and not any(holds(value, facts) for value in values):
                return f"{key}: {', '.join(values)}"
    return None


def _client(pattern: str, facts: Facts) -> bool:
    return facts.client is None or fnmatchcase(facts.client.lower(), pattern.lower())


def fits_an_agent(pattern: str, names: Iterable[str]) -> bool:
    """Whether an agent of one of these names is meant by the pattern."""
    return any(fnmatchcase(name.lower(), pattern.lower()) for name in names)


def _agent(pattern: str, facts: Facts) -> bool:
    return fits_an_agent(pattern, facts.agents)


def _capability(path: str, facts: Facts) -> bool:
    if facts.client is None:
        return True
    value = facts.capabilities
    for name in path.split("."):
        value = value.get(name) if isinstance(value, Mapping) else None
    return value is not None and value is not False


def _cwd(pattern: str, facts: Facts) -> bool:
    if facts.cwd is None:
        return False
    wanted = [_parts(each) for each in glob_spellings(pattern)]
    return any(
        _fits(parts[:length], each)
        for parts in map(_parts, directory_spellings(facts.cwd))
        for each in wanted
        for length in range(len(parts), -1, -1)
    )


def _env(condition: str, facts: Facts) -> bool:
    name, equals, value = condition.partition("=")
    return facts.environ.get(name) == value if equals else name in facts.environ


_CONDITIONS: Final[dict[str, Callable[[str, Facts], bool]]] = {
    "client": _client,
    "agent": _agent,
    "cwd": _cwd,
    "capability": _capability,
    "env": _env,
}


def _parts(path: str) -> list[str]:
    return [part for part in path.split(os.sep) if part]


def _fits(parts: Sequence[str], pattern: Sequence[str]) -> bool:
    """Whether directories fit a pattern of equally many, but for `**`."""
    if not pattern:
        return not parts
    first, rest = pattern[0], pattern[1:]
    if first == "**":
        return any(_fits(parts[skipped:], rest) for skipped in range(len(parts) + 1))
    return bool(parts) and fnmatchcase(parts[0], first) and _fits(parts[1:], rest)
