"""The parts of a tool call that permission rules read: kinds, subject, commands, paths, tool."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import attrs

from conductor.proxy.tool_names import About, Evidence, Identity, ToolTable, identify
from proxies.shared.paths import home_expanded
from proxies.shared.tool_calls.commands import Commands, commands
from proxies.shared.tool_calls.paths import NamedPaths, named_paths
from proxies.shared.tool_calls.texts import parsed_json

__all__ = ["Call", "evident_kinds"]

_CHANGES_FILES: Final = ("edit", "delete", "move")
_BUILT_IN: Final = ("diff", "terminal")


@attrs.frozen
class Call:
    """The parts of a permission request that rules read."""

    kind: str
    kinds: frozenset[str]
    """Its kind, plus those that its content implies: `execute` for a command, `edit` for a diff."""
    about: tuple[About, ...]
    """Possible subjects of the request; one if it is certain."""
    title: str
    commands: Commands
    paths: NamedPaths
    tool: Identity
    may_be_mcp: bool
    """Whether it may be a call of an MCP tool, if the tool is not identified for certain."""
    cwd: str
    """The directory of the user's session, which rules are relative to."""
    bases: tuple[str, ...]
    """All directories that the words of a command may be relative to."""
    session: str
    above: tuple[str, ...]
    """The sessions that the session of a subagent belongs to."""
    agent: str
    is_placed: bool = True
    """Whether its user's session is known (`Session.is_placed`)."""

    @classmethod
    def of(
        cls,
        call: Mapping[str, Any],
        *,
        cwd: str,
        session: str,
        agent: str,
        table: ToolTable | None = None,
        evidence: Evidence | None = None,
        declared: Sequence[str] = (),
        runs_in: Sequence[str] = (),
        above: Sequence[str] = (),
        is_placed: bool = True,
    ) -> Call:
        """Read a tool call. `declared` are the names of the session's MCP servers, `runs_in` the
        directories in which a subagent may work."""
        call = {**call, "rawInput": _parsed(call.get("rawInput"))}
        evidence = attrs.evolve(evidence, call=call) if evidence else Evidence(call, call, call)
        table = table or ToolTable()
        kind, title = str(call.get("kind") or "other"), str(call.get("title") or "")
        run = commands(call["rawInput"], kind)
        run = attrs.evolve(run, directories=(*run.directories, *runs_in))
        bases = [os.path.join(cwd, home_expanded(each)) for each in (cwd, *run.directories)]
        return cls(
            kind=kind,
            kinds=frozenset(_evident_kinds(kind, run, call.get("content"))),
            about=table.about(evidence, declared) if evidence.asked else ("question",),
            title=title,
            commands=run,
            paths=named_paths(call, cwd, run.file_words(), runs_in),
            tool=identify(table, evidence, declared),
            may_be_mcp=_may_be_mcp(table, kind, run, call.get("content")),
            cwd=cwd,
            bases=tuple(dict.fromkeys(bases)),
            session=session,
            above=tuple(above),
            agent=agent,
            is_placed=is_placed,
        )


def evident_kinds(call: Mapping[str, Any]) -> frozenset[str]:
    """Return the kind of a tool call, plus those that its content implies."""
    kind = str(call.get("kind") or "other")
    run = commands(_parsed(call.get("rawInput")), kind)
    return frozenset(_evident_kinds(kind, run, call.get("content")))


def _parsed(given: Any) -> Any:
    """Return the input of a tool, parsed if the agent sends it as JSON text."""
    if isinstance(given, str) and given.lstrip()[:1] in ("{", "["):
        try:
            return parsed_json(given)
        except ValueError:
            return given
    return given


def _evident_kinds(kind: str, run: Commands, content: Any) -> Iterator[str]:
    yield kind
    if run:
        yield "execute"
    parts = content if isinstance(content, list) else []
    is_diff = any(isinstance(part, Mapping) and part.get("type") == "diff" for part in parts)
    if is_diff and kind not in _CHANGES_FILES:
        yield "edit"


def _may_be_mcp(table: ToolTable, kind: str, run: Commands, content: Any) -> bool:
    """Whether a call may be of an MCP tool, if no place names the tool for certain.

    Agents send diffs and terminals for built-in tools only. Otherwise the agent's `mcp_kinds`
    decide; without them, any call may be of an MCP tool.
    """
    parts = content if isinstance(content, list) else []
    if any(isinstance(part, Mapping) and part.get("type") in _BUILT_IN for part in parts):
        return False
    if table.mcp_kinds is None:
        return True
    return kind in table.mcp_kinds and not (kind == "execute" and run.texts)
