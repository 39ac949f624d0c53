"""Permission rules: what a tool call is, which rule is about it, and which option that means.

Pure. A rule that allows must hold for everything that the call says of itself, one that denies for
any part of it: when in doubt, somebody is asked.
"""

from __future__ import annotations

import fnmatch
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal, TypeAlias

import attrs

from proxies._globs import matches
from proxies._patterns import compile_pattern

__all__ = ["Action", "Call", "Rule", "choose_option", "first_match"]

Action: TypeAlias = Literal["allow_once", "allow_always", "deny", "ask"]

_OPTION_KINDS: Mapping[str, Sequence[str]] = {
    "allow_once": ["allow_once"],
    "allow_always": ["allow_always", "allow_once"],
    "deny": ["reject_once", "reject_always"],
}
"""Which options carry an action out, the best first: never more is allowed than the rule says."""
_PATH_KEYS = ("path", "file_path", "filePath", "abs_path", "notebook_path", "filename")
_NAME = re.compile(r"[\w.-]+")
_CHAINS = re.compile(r"[;&|`<>\n\r]|\$\(")


def _pattern(instance: Any, field: Any, value: str | None) -> None:
    if value is not None:
        compile_pattern(value)


@attrs.frozen
class Call:
    """A tool call, as far as rules look at it."""

    kind: str
    title: str
    command: str | None
    paths: tuple[str, ...]
    tools: tuple[str, ...]
    """Ways to name the tool; of MCP tools also as `server/tool`."""
    cwd: str
    session: str
    agent: str

    @classmethod
    def of(cls, call: Mapping[str, Any], *, cwd: str, session: str, agent: str) -> Call:
        raw = call.get("rawInput")
        given: Mapping[str, Any] = raw if isinstance(raw, dict) else {}
        kind, title = str(call.get("kind") or "other"), str(call.get("title") or "")
        return cls(
            kind=kind,
            title=title,
            command=_command(given),
            paths=tuple(dict.fromkeys(_paths(call, given, cwd))),
            tools=tuple(dict.fromkeys(_tools(call, given, kind))),
            cwd=cwd,
            session=session,
            agent=agent,
        )


@attrs.frozen
class Rule:
    """One rule: all that it names must match. `kind` and the globs match if one of a list does."""

    action: Action
    name: str | None = None
    kind: list[str] = attrs.field(factory=list)
    title: str | None = attrs.field(default=None, validator=_pattern)
    """A regular expression, found anywhere in the title; beware, the model writes titles."""
    command: str | None = attrs.field(default=None, validator=_pattern)
    """A regular expression for the whole command."""
    chained: bool = False
    """Whether an allowing `command` may match commands with `;`, `|`, `&&`, `$(…)` or `>`."""
    path: list[str] = attrs.field(factory=list)
    """Globs, relative to the session's directory."""
    mcp_tool: list[str] = attrs.field(factory=list)
    """Globs for `server/tool`, or for the tool's name as the agent gives it."""
    session: list[str] = attrs.field(factory=list)
    agent: list[str] = attrs.field(factory=list)
    """Globs for the name that the agent gives itself."""

    def matches(self, call: Call) -> bool:
        return (
            (not self.kind or call.kind in self.kind)
            and (self.title is None or compile_pattern(self.title).search(call.title) is not None)
            and (self.command is None or self._command_matches(call))
            and (not self.path or self._paths_match(call))
            and (not self.mcp_tool or _any(self.mcp_tool, call.tools))
            and (not self.session or _any(self.session, [call.session]))
            and (not self.agent or _any(self.agent, [call.agent]))
        )

    @property
    def allows(self) -> bool:
        return self.action.startswith("allow")

    def _command_matches(self, call: Call) -> bool:
        """A title may be cut off, or be what the model wants it to be: it allows nothing."""
        regex = self.command or ""
        if self.allows:
            command = call.command
            if command is None or (_CHAINS.search(command) and not self.chained):
                return False
            return compile_pattern(regex, dot_all=True).fullmatch(command)
        titles = [call.title] if call.kind == "execute" else []
        return any(
            compile_pattern(regex).search(text) for text in [call.command or "", *titles] if text
        )

    def _paths_match(self, call: Call) -> bool:
        """An allowing rule wants every path, as written and behind symbolic links."""
        found = [
            any(matches(path, glob, cwd) for glob in self.path)
            for each in call.paths
            for path, cwd in (
                (each, call.cwd),
                (os.path.realpath(each), os.path.realpath(call.cwd)),
            )
        ]
        return bool(found) and (all(found) if self.allows else any(found))


def first_match(rules: Sequence[Rule], call: Call) -> tuple[int, Rule] | None:
    """The first rule about this call, with its number in the file (from 1)."""
    return next(((n, rule) for n, rule in enumerate(rules, 1) if rule.matches(call)), None)


def choose_option(action: Action, options: Iterable[Mapping[str, Any]]) -> dict[str, Any] | None:
    """The outcome that carries an action out; None if the client has to be asked.

    Where nothing can be rejected, a denial cancels.
    """
    if action == "ask":
        return None
    ids = {option.get("kind"): option.get("optionId") for option in reversed(list(options))}
    for kind in _OPTION_KINDS[action]:
        if kind in ids:
            return {"outcome": "selected", "optionId": ids[kind]}
    return {"outcome": "cancelled"} if action == "deny" else None


def _any(globs: Sequence[str], names: Iterable[str]) -> bool:
    return any(fnmatch.fnmatchcase(name, glob) for name in names for glob in globs)


def _command(given: Mapping[str, Any]) -> str | None:
    value, arguments = given.get("command") or given.get("cmd"), given.get("args")
    words = [str(word) for word in value] if isinstance(value, list) else []
    if isinstance(value, str):
        words = [value]
    if len(words) == 3 and words[1] in ("-c", "-lc"):
        return words[2]
    words += map(str, arguments) if isinstance(arguments, list) else []
    return " ".join(words) or None


def _paths(call: Mapping[str, Any], given: Mapping[str, Any], cwd: str) -> Iterable[str]:
    found = [given[key] for key in _PATH_KEYS if key in given]
    for part in [*(call.get("locations") or ()), *(call.get("content") or ())]:
        if isinstance(part, dict):
            found.append(part.get("path"))
            # A version 2 diff is about several files.
            for change in part.get("changes") or ():
                found += [change.get(key) for key in ("path", "oldPath")]
    for path in found:
        if isinstance(path, str) and path:
            yield os.path.normpath(os.path.join(cwd, path))


def _tools(call: Mapping[str, Any], given: Mapping[str, Any], kind: str) -> Iterable[str]:
    """Agents write a server's tool as `mcp__S__T`, `S__T`, `S_T`, or tell both in the input.

    The title of a command is the command, so only titles of no special kind are looked at.
    """
    invocation = given.get("invocation")
    told: Mapping[str, Any] = invocation if isinstance(invocation, dict) else given
    if isinstance(told.get("server"), str) and isinstance(told.get("tool"), str):
        yield f"{told['server']}/{told['tool']}"
    for name in (call.get("name"), call.get("title") if kind == "other" else None):
        if isinstance(name, str) and _NAME.fullmatch(name):
            yield name
            server, separator, tool = name.removeprefix("mcp__").partition("__")
            if separator:
                yield f"{server}/{tool}"
