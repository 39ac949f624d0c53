"""Identify the tool of a permission request, from the naming conventions of known agents.

The table is `tool_names.yaml`. A name is *sure* only in a place that neither the model
nor another tool's MCP server can write; tool arguments never are such a place. Pure.
"""

from __future__ import annotations

import fnmatch
import functools
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Literal, TypeAlias

import attrs

from conductor.proxy.permission_options import offers_answers, offers_mode

__all__ = [
    "About",
    "Certainty",
    "Evidence",
    "Identity",
    "Naming",
    "QuestionRule",
    "Tool",
    "ToolTable",
    "canonical_name",
    "identify",
    "tool_table",
]

About: TypeAlias = Literal["tool", "plan", "question", "permission"]
"""Subject of a permission request: running a tool, approving a plan (or another mode), a question
to the user, or more permissions for the agent."""
Certainty: TypeAlias = Literal["no", "maybe", "yes"]
"""Whether a tool matches globs: "maybe" if its name can mean several tools."""

_MAX_NAME: Final = 300
"""Maximum characters of a name that is parsed."""
_MAX_UNCUT: Final = 40
"""Maximum characters of a name that no agent truncates."""
_SHOWN: Final = ("call.title", "request.title", "request.description", "call.rawInput.url")
"""Places of what a client shows of a request that names no tool."""
_NUMBERED: Final = re.compile(r"(.+)-[0-9]{1,6}")


@attrs.frozen
class Evidence:
    """All data about one tool call, by place.

    `announced`: from `session/update`; `asked`: from the permission request; `call`: both merged;
    `request`: params of the permission request.
    """

    announced: Mapping[str, Any] = attrs.field(factory=dict)
    asked: Mapping[str, Any] = attrs.field(factory=dict)
    call: Mapping[str, Any] = attrs.field(factory=dict)
    request: Mapping[str, Any] = attrs.field(factory=dict)

    def at(self, place: str) -> Any:
        """Return the value at a place such as `asked._meta.toolName`; `None` if absent."""
        root, *keys = place.split(".")
        value = getattr(self, root)
        for key in keys:
            value = value.get(key) if isinstance(value, Mapping) else None
        return value

    def fits(self, conditions: Mapping[str, Any]) -> bool:
        """Whether each place has its value: a glob for texts, `null` for absent."""
        return all(_fits(self.at(place), wanted) for place, wanted in conditions.items())


@attrs.frozen
class Naming:
    """One place where an agent names the tool. `tool_names.yaml` explains the fields."""

    at: Sequence[str]
    form: str = "{tool}"
    server: str | None = None
    tool: str | None = None
    when: Mapping[str, Any] = attrs.field(factory=dict)
    sure: bool = True
    declared: bool = False
    longest: int = _MAX_NAME
    cut: str | None = None

    def alternatives(self, evidence: Evidence, declared: Sequence[str]) -> list[Tool]:
        """Return the tools that the name can mean; empty if the place has no name."""
        if not evidence.fits(self.when):
            return []
        for place in self.at:
            text = evidence.at(place)
            if isinstance(text, str) and text and (found := self._read(text, evidence, declared)):
                return found
        return []

    def _read(self, text: str, evidence: Evidence, declared: Sequence[str]) -> list[Tool]:
        declared_name = evidence.at(self.server) if self.server else None
        if self.tool is not None:  # server and tool are in different places
            tool = evidence.at(self.tool) if self.tool else None
            return list(_of_server(text, tool if isinstance(tool, str) else None, "", declared))
        if len(text) > min(self.longest, _MAX_NAME) or (self.cut and self.cut in text):
            return [Tool((), None, text, is_mcp=True)] if _splits(self.form, text) else []
        found = [
            tool
            for server, name in _splits(self.form, text)
            for tool in _of_server(server, name, text, declared)
        ]
        if isinstance(declared_name, str):
            exact = [each for each in found if _plain(declared_name) in map(_plain, each.servers)]
            found = [attrs.evolve(each, servers=(declared_name,)) for each in exact] or [
                *found,
                Tool((declared_name,), None, text, is_mcp=True),
            ]
        elif len(known := [each for each in found if each.is_declared]) == 1 and (
            _form(self.form)[1] == "_"  # nearly every name of a tool has one, too
        ):
            found = known
        return found


@attrs.frozen
class QuestionRule:
    """Conditions under which a permission request is not about running a tool."""

    about: About
    when: Mapping[str, Any]
    sure: bool = True


@attrs.frozen
class Tool:
    """One tool that a name can mean."""

    servers: tuple[str, ...]
    """Names of its MCP server; empty for a built-in tool, or if unknown."""
    name: str | None
    """Its name at the server; `None` if unknown."""
    agent_name: str
    """The name that the agent gives it."""
    is_mcp: bool = False
    is_declared: bool = False
    """Whether the session declares a server of this name."""

    @property
    def canonical(self) -> str | None:
        """`server/tool` for a tool of an MCP server, else the agent's name; `None` if unknown."""
        if self.servers or self.is_mcp:
            return f"{self.servers[0]}/{self.name}" if self.servers and self.name else None
        return self.agent_name or None

    @property
    def texts(self) -> list[str]:
        """Names that the globs of rules are matched against."""
        texts = [f"{server}/{self.name}" for server in self.servers if self.name is not None]
        return [*texts, self.agent_name] if self.agent_name else texts

    def matches(self, globs: Sequence[str]) -> Certainty:
        if any(fnmatch.fnmatchcase(text, glob) for text in self.texts for glob in globs):
            return "maybe" if any("/" in server for server in self.servers) else "yes"
        if self.name is None and self.is_mcp:
            found = [_of_any(globs, one) for one in self.servers] or ["maybe"]
            return max(found, key=("no", "maybe", "yes").index)
        return "no"


@attrs.frozen
class Identity:
    """The tool of a call: one of `tools` if `sure`, otherwise these are hints."""

    tools: tuple[Tool, ...] = ()
    sure: bool = False
    name: str | None = None
    """Value of the protocol's member `name`, if the tool is not sure."""

    @property
    def is_mcp(self) -> bool:
        """Whether it is known to be a tool of an MCP server."""
        return self.sure and any(each.is_mcp for each in self.tools)

    @property
    def canonical(self) -> str | None:
        """`server/tool` for a tool of an MCP server, else the name that the agent gives it; `None`
        if the tool is not sure, or the name can mean several."""
        names = {each.canonical for each in self.tools} if self.sure else set()
        return names.pop() if len(names) == 1 else None

    def matches(self, globs: Sequence[str], *, allows: bool) -> Certainty:
        """Whether a sure tool matches the globs. A rule that allows matches no built-in tool."""
        found = {"no" if allows and not each.is_mcp else each.matches(globs) for each in self.tools}
        return found.pop() if len(found) == 1 else "maybe"

    def hints_at(self, globs: Sequence[str]) -> bool:
        """Whether any name of the tool, sure or not, matches a glob."""
        return any(each.matches(globs) != "no" for each in self.tools)

    def excludes(self, globs: Sequence[str]) -> bool:
        """Whether the agent's name for the tool, which may contain the server's, contains no tool
        name of these globs."""
        if not self.name or len(self.name) > _MAX_UNCUT:
            return False
        names = (glob.rpartition("/")[2] for glob in globs)
        plain = _plain(self.name).lower()
        return not any(fnmatch.fnmatchcase(plain, f"*{_plain_glob(name)}*") for name in names)

    def __str__(self) -> str:
        names = {each.texts[0] if each.texts else "/".join(each.servers) for each in self.tools}
        return " or ".join(sorted(names))


@attrs.frozen
class ToolTable:
    """Naming rules of an agent for tools and questions: its own entries, then the common ones."""

    tools: Sequence[Naming] = ()
    questions: Sequence[QuestionRule] = ()
    mcp_kinds: frozenset[str] | None = None
    """Kinds of calls that may be MCP tools if no place names the tool for certain; `None`: all
    kinds, also with a command."""

    @classmethod
    def of(cls, entries: Iterable[Mapping[str, Any]], agent: str) -> ToolTable:
        tools: list[Naming] = []
        questions: list[QuestionRule] = []
        mcp_kinds: frozenset[str] | None = None
        for entry in entries:
            if fnmatch.fnmatchcase(agent.lower(), entry["agent"]):
                tools += [Naming(**one) for one in entry.get("tools") or ()]
                questions += [QuestionRule(**one) for one in entry.get("questions") or ()]
                if "mcp_kinds" in entry:
                    mcp_kinds = (mcp_kinds or frozenset()) | {*entry["mcp_kinds"]}
        return cls(tools, questions, mcp_kinds)

    def about(self, evidence: Evidence, declared: Sequence[str] = ()) -> tuple[About, ...]:
        """Return the possible subjects of a request; several if the model may have written them, or
        if only its shape tells."""
        found = [one for one in self.questions if evidence.fits(one.when)]
        sure: About = next((one.about for one in found if one.sure), "tool")
        maybe = [one.about for one in found if not one.sure]
        if sure == "tool" and (shapes := list(_shapes(evidence))):
            maybe += [] if identify(self, evidence, declared).sure else shapes
        return tuple(dict.fromkeys([*maybe, sure]))


@functools.lru_cache(10)
def tool_table(agent: str) -> ToolTable:
    """Return the table of an agent: how it names the tool of a permission request."""
    return ToolTable.of(_entries(), agent)


@functools.cache
def _entries() -> Sequence[Mapping[str, Any]]:
    import yaml  # lazy: only chains in which permission is asked for need it

    # `importlib.resources` would find it in a zip archive too, and takes 4 ms to import.
    text = Path(__file__).with_name("tool_names.yaml").read_text(encoding="utf-8")
    entries: Sequence[Mapping[str, Any]] = yaml.safe_load(text)
    return entries


def canonical_name(agent: str, evidence: Evidence, declared: Sequence[str]) -> str | None:
    """Return the canonical name of a call's tool; `None` if the tool is not sure, or if the request
    may be about something else, such as a question to the user."""
    table = tool_table(agent)
    if table.about(evidence, declared) != ("tool",):
        return None
    return identify(table, evidence, declared).canonical


def _shapes(evidence: Evidence) -> Iterator[About]:
    """Possible subjects of a request of any agent by its shape: several answers, another mode, a
    page, a plan. A tool that is known for certain can have a URL or a plan for an argument."""
    options = evidence.at("request.options")
    if isinstance(options, Sequence):
        if offers_answers(options):
            yield "question"
        if offers_mode(options):
            yield "plan"
    if evidence.at("call.kind") in (None, "other"):
        shown = [evidence.at(place) for place in _SHOWN]
        if any(isinstance(each, str) and "://" in each for each in shown):
            yield "question"
        if isinstance(evidence.at("call.rawInput.plan"), str):
            yield "plan"


def identify(table: ToolTable, evidence: Evidence, declared: Sequence[str]) -> Identity:
    """Identify the tool of a call; `declared` are the names of the session's MCP servers."""
    hints: list[Tool] = []
    for naming in table.tools:
        found = naming.alternatives(evidence, declared)
        is_known = not naming.declared or (len(found) == 1 and found[0].is_declared)
        if found and naming.sure and is_known:
            return Identity(tuple(found), sure=True)
        hints += found
    name = evidence.at("asked.name") or evidence.at("announced.name")
    return Identity(tuple(dict.fromkeys(hints)), name=name if isinstance(name, str) else None)


def _fits(value: Any, wanted: Any) -> bool:
    if isinstance(wanted, str):
        return isinstance(value, str) and fnmatch.fnmatchcase(value, wanted)
    return bool(value == wanted)


@functools.lru_cache(100)
def _form(form: str) -> tuple[re.Pattern[str], str, bool]:
    """Return a regex for the text around `{server}` and `{tool}`, the text between them, and
    whether the server is first."""
    parts = re.split(r"\{(server|tool)\}", form)
    ends = [re.escape(part).replace(r"\{number\}", "[0-9]+") for part in (parts[0], parts[-1])]
    ends[1] = ends[1].replace(r"__\{rest\}", "(?<!_)__(?!_)(?:(?!__).)+")
    around = re.compile(f"{ends[0]}(.+){ends[1]}", re.DOTALL)
    return around, parts[2] if len(parts) == 5 else "", parts[1] == "server"


def _splits(form: str, text: str) -> Iterator[tuple[str | None, str]]:
    """Yield all (server, tool) that give this text; the server is `None` in a form without one."""
    around, between, server_first = _form(form)
    if (found := around.fullmatch(text)) is None:
        return
    middle, at = found[1], 1
    if form.endswith("__{rest}") and "__" in middle:
        return  # where the name ends is not certain
    if not between:
        yield None, middle
        return
    while (at := middle.find(between, at)) > 0:
        first, second = middle[:at], middle[at + len(between) :]
        if second:
            yield (first, second) if server_first else (second, first)
        at += 1


def _of_server(
    server: str | None, name: str | None, agent_name: str, declared: Sequence[str]
) -> Iterator[Tool]:
    """Yield the tool under each declared server name that `server` can stand for.

    Agents replace characters in names, and the MCP bridge numbers them (`tools-2`).
    """
    if server is None:
        yield Tool((), name, agent_name)
        return
    same = [server] if server in declared else [d for d in declared if _plain(d) == _plain(server)]
    if not same and (numbered := _NUMBERED.fullmatch(server)):
        same = [each for each in declared if _plain(each) == _plain(numbered[1])]
    for each in same or [server]:
        servers = tuple(dict.fromkeys((each, server)))
        yield Tool(servers, name, agent_name, is_mcp=True, is_declared=bool(same))


def _plain(name: str) -> str:
    return re.sub(r"[^A-Za-z0-9]", "_", name)


def _plain_glob(glob: str) -> str:
    """Return a glob for names from `_plain`; `*` for a glob with a character set."""
    return "*" if "[" in glob else re.sub(r"[^A-Za-z0-9*?]", "_", glob).lower()


def _of_any(globs: Sequence[str], server: str) -> Certainty:
    """Match globs against a tool of which only the server is known."""
    all_of_it = [glob[:-2] for glob in globs if glob.endswith("/*")]
    if any(fnmatch.fnmatchcase(server, glob) for glob in all_of_it):
        return "yes"
    some = [glob.rpartition("/")[0] or "*" for glob in globs]
    return "maybe" if any(fnmatch.fnmatchcase(server, glob) for glob in some) else "no"
