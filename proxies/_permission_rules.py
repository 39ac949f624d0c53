"""Permission rules: which rule is about a tool call, and which option carries its action out.

A condition of a rule holds for certain, maybe, or not. A rule that allows needs certainty for
everything that the call says of itself; for a rule that denies or asks, a part that may be meant is
enough. Reads symbolic links; otherwise pure.
"""

from __future__ import annotations

import fnmatch
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, Literal, TypeAlias

import attrs

from proxies._regex import compile_pattern
from proxies._tool_commands import Commands, commands, is_chained
from proxies._tool_names import About, Certainty, Evidence, Identity, ToolTable, identify
from proxies._tool_paths import NamedPaths, named_paths

__all__ = [
    "Action",
    "Call",
    "Decision",
    "Rule",
    "choose_option",
    "decide",
    "evident_kinds",
    "first_match",
]

Action: TypeAlias = Literal["allow_once", "allow_always", "deny", "ask"]

_OPTION_KINDS: Final[Mapping[str, Sequence[str]]] = {
    "allow_once": ["allow_once"],
    "allow_always": ["allow_always", "allow_once"],
    "deny": ["reject_once", "reject_always"],
}
"""Which options carry an action out, the best first: never more is allowed than the rule says."""
_CHANGES_FILES: Final = ("edit", "delete", "move")
_BUILT_IN: Final = ("diff", "terminal")
_MAX_TEXT: Final = 65_536
"""Characters of a command or title that a rule may allow."""


def _pattern(instance: Any, field: Any, value: str | None) -> None:
    if value is not None:
        compile_pattern(value)


@attrs.frozen
class Call:
    """A permission request, as far as rules look at it."""

    kind: str
    kinds: frozenset[str]
    """Its kind, and those that its content gives evidence of: a command, a changed file."""
    about: tuple[About, ...]
    """What it is about; several if that is not certain."""
    title: str
    commands: Commands
    paths: NamedPaths
    tool: Identity
    may_be_mcp: bool
    """Whether it may be a call of an MCP tool, if the tool is not sure."""
    cwd: str
    session: str
    agent: str

    @classmethod
    def of(
        cls,
        call: Mapping[str, Any],
        *,
        cwd: str,
        session: str,
        agent: str,
        table: ToolTable | None = None,
        said: Evidence | None = None,
        declared: Sequence[str] = (),
    ) -> Call:
        """`declared` are the names of the session's MCP servers."""
        call = {**call, "rawInput": _parsed(call.get("rawInput"))}
        said = attrs.evolve(said, call=call) if said else Evidence(call, call, call)
        table = table or ToolTable()
        kind, title = str(call.get("kind") or "other"), str(call.get("title") or "")
        run = commands(call["rawInput"], kind)
        return cls(
            kind=kind,
            kinds=frozenset(_evident_kinds(kind, run, call.get("content"))),
            about=table.about(said) if said.asked else ("question",),
            title=title,
            commands=run,
            paths=named_paths(call, cwd, run.file_words()),
            tool=identify(table, said, declared),
            may_be_mcp=_may_be_mcp(table, kind, run, call.get("content")),
            cwd=cwd,
            session=session,
            agent=agent,
        )


@attrs.frozen
class Verdict:
    """Whether a rule is about a call, and if it nearly is, what is missing."""

    certainty: Certainty
    reason: str = ""


_YES: Final = Verdict("yes")
_NO: Final = Verdict("no")


@attrs.frozen
class Rule:
    """One rule: all that it names must match. `kind` and the globs match if one of a list does."""

    action: Action
    name: str | None = None
    kind: list[str] = attrs.field(factory=list)
    about: list[About] = attrs.field(factory=list)
    """What is asked: to run a `tool` (the default), approval of a `plan`, a `question`, or a
    `permission` for the agent itself. `kind: [switch_mode]` names plans, too."""
    title: str | None = attrs.field(default=None, validator=_pattern)
    """A regular expression, found anywhere in the title; beware, the model writes titles."""
    command: str | None = attrs.field(default=None, validator=_pattern)
    """A regular expression for the whole command; options that write or execute are part of it."""
    chained: bool = False
    """Whether an allowing `command` may match commands with `;`, `|`, `&&`, `$`, `>`, …"""
    argv: list[str] = attrs.field(factory=list)
    """Commands by their first words: `git status`. The other words must be options that the rule
    names, or names without a path out of the session's directory."""
    options: list[str] = attrs.field(factory=list)
    """Globs for the options (words that begin with `-`) that `argv` allows."""
    path: list[str] = attrs.field(factory=list)
    """Globs, relative to the session's directory."""
    mcp_tool: list[str] = attrs.field(factory=list)
    """Globs for `server/tool`, or for the tool's name as the agent gives it."""
    session: list[str] = attrs.field(factory=list)
    agent: list[str] = attrs.field(factory=list)
    """Globs for the name that the agent gives itself."""

    def __attrs_post_init__(self) -> None:
        if self.argv and not self.allows:
            raise ValueError("`argv` is for rules that allow; this one needs `command`")
        if self.options and not self.argv:
            raise ValueError("`options` belong to `argv`")

    @property
    def allows(self) -> bool:
        return self.action.startswith("allow")

    def matches(self, call: Call) -> bool:
        certainty = self.verdict(call).certainty
        return certainty == "yes" or (certainty == "maybe" and not self.allows)

    def verdict(self, call: Call) -> Verdict:
        """The least certain of the rule's conditions."""
        worst = _YES
        for each in self._verdicts(call):
            if each.certainty == "no":
                return each
            if each.certainty == "maybe" and worst is _YES:
                worst = each
        return worst

    def _verdicts(self, call: Call) -> Iterator[Verdict]:
        """Conditions that only select come first: a rule for another session has no reason."""
        yield _verdict_of(not self.session or _any(self.session, [call.session]))
        yield _verdict_of(not self.agent or _any(self.agent, [call.agent]))
        yield self._kind(call)
        if self.title is not None:
            yield _verdict_of(compile_pattern(self.title).search(call.title) is not None)
        yield self._about(call)
        if self.mcp_tool:
            yield self._tool(call)
        if self.path:
            yield self._path(call)
        if self.command is not None:
            yield self._command(call, self.command)
        if self.argv:
            yield self._argv(call)
        if self.allows:
            yield self._covers_the_rest(call)

    def _kind(self, call: Call) -> Verdict:
        if not self.kind or call.kind in self.kind:
            return _YES
        if not self.allows and not call.kinds.isdisjoint(self.kind):
            return Verdict("maybe")
        return _NO

    def _about(self, call: Call) -> Verdict:
        """A rule that denies or asks names a question by its title, too."""
        named = {*(self.about or ["tool"]), *(["plan"] if "switch_mode" in self.kind else [])}
        if named.issuperset(call.about) or (self.title is not None and not self.allows):
            return _YES
        if not self.allows and not named.isdisjoint(call.about):
            return Verdict("maybe")
        other = next(each for each in call.about if each not in named)
        return Verdict("no", f"it is about a {other}, and the rule does not name that")

    def _tool(self, call: Call) -> Verdict:
        if call.tool.sure:
            certainty = call.tool.matches(self.mcp_tool, allows=self.allows)
            told = "" if certainty == "no" else f"the tool may be {call.tool}"
            return Verdict(certainty, told)
        is_other = not call.may_be_mcp or call.tool.excludes(self.mcp_tool)
        if not self.allows and is_other and not call.tool.hints_at(self.mcp_tool):
            return _NO
        return Verdict("maybe", "the agent does not say for certain which tool it is")

    def _path(self, call: Call) -> Verdict:
        if not self.allows:
            return _verdict_of(call.paths.touches(self.path))
        told = [call.paths]
        if self.command is not None or self.argv:
            if call.commands.words is None:
                return Verdict("maybe", "the files of the command are not certain")
            _, operands = _options_and_operands(call.commands.words[self._prefix(call) or 1 :])
            told = [each for each in (call.paths, _as_paths(operands, call.cwd)) if each] or told
        reasons = (each.not_covered(self.path) for each in told)
        return next((Verdict("no", reason) for reason in reasons if reason), _YES)

    def _command(self, call: Call, pattern: str) -> Verdict:
        """A title may be cut off, or be what the model wants it to be: it allows nothing."""
        if not self.allows:
            title = call.title if call.kind == "execute" else None
            regex = compile_pattern(pattern)
            return _verdict_of(
                any(regex.search(text) for text in call.commands.searched(title) if text)
            )
        run = call.commands
        if not run.texts:
            told = "the agent does not tell the command, only a title"
            return Verdict("no", told if call.kind == "execute" else "")
        regex = compile_pattern(pattern, dot_all=True)
        if not all(len(text) <= _MAX_TEXT and regex.fullmatch(text) for text in run.texts):
            return _NO
        if not self.chained and any(is_chained(text) for text in run.texts):
            return Verdict("no", "the command may run or write more (`chained: true` allows it)")
        return self._surely_runs(call)

    def _argv(self, call: Call) -> Verdict:
        words = call.commands.words
        if words is None:
            told = call.commands.unclear or "a shell may read the command in other ways"
            return Verdict("no", told if call.commands else "")
        if not (start := self._prefix(call)):
            return _NO
        options, operands = _options_and_operands(words[start:])
        for word in options:
            if not _any(self.options, [word]):
                return Verdict("no", f"the rule does not name the option `{word}`")
        outside = _as_paths([*options, *([] if self.path else operands)], call.cwd).outside()
        if outside is not None:
            return Verdict("no", f"`{outside}` is outside of the session's directory")
        return self._surely_runs(call)

    def _prefix(self, call: Call) -> int:
        """How many words of the command `argv` names; 0 if it names another command."""
        words, named = call.commands.words or (), (each.split() for each in self.argv)
        return max((len(one) for one in named if list(words[: len(one)]) == one), default=0)

    def _surely_runs(self, call: Call) -> Verdict:
        if call.commands.unclear:
            return Verdict("no", call.commands.unclear)
        outside = _as_paths(call.commands.directories, call.cwd).outside()
        if outside is not None:
            return Verdict("no", f"it runs outside of the session's directory, in `{outside}`")
        return _YES

    def _covers_the_rest(self, call: Call) -> Verdict:
        """What the call does besides what the rule names."""
        runs = self.command is not None or bool(self.argv)
        if call.tool.is_mcp and not self.mcp_tool and (runs or self.path):
            return Verdict("no", f"it is the MCP tool {call.tool}, and the rule does not name it")
        if self.kind or self.path or self.title is not None:
            more = call.kinds - {call.kind, *self.kind} - ({"execute"} if runs else set())
            if call.kind == "execute" and not self.kind and not runs:
                more |= {"execute"}
            if more:
                what = "carries a command" if "execute" in more else "changes files"
                return Verdict("no", f"the call {what}, and the rule does not name it")
        elif not runs and not self.mcp_tool and call.kind == "other" and not call.tool.sure:
            return Verdict("maybe", "the agent does not say what it asks for: add `kind: [other]`")
        return _YES


@attrs.frozen
class Decision:
    """Which rule decides about a call."""

    action: Action
    number: int | None = None
    """The rule's number in the file, from 1; None for the default."""
    rule: Rule | None = None
    reasons: tuple[str, ...] = ()
    """Why earlier rules, or the default, did not decide."""

    @property
    def name(self) -> str:
        return (self.rule.name if self.rule else None) or (
            f"rule {self.number}" if self.number else "default"
        )


def decide(rules: Sequence[Rule], default: Action, call: Call) -> Decision:
    """What the rules say: the first that is about the call.

    A rule that asks, and that may only be about it, lets a later rule deny.
    """
    reasons: list[str] = []
    asks: Decision | None = None
    for number, rule in enumerate(rules, 1):
        verdict = rule.verdict(call)
        decision = Decision(rule.action, number, rule)
        if verdict.certainty == "yes" or (verdict.certainty == "maybe" and rule.action == "deny"):
            if asks is not None and rule.action != "deny":
                decision = asks
            return attrs.evolve(decision, reasons=tuple(reasons))
        if verdict.certainty == "maybe" and rule.action == "ask":
            asks = asks or decision
        elif verdict.reason:
            reasons.append(f"{decision.name}: {verdict.reason}")
    if asks is None and default.startswith("allow"):
        verdict = Rule(default).verdict(call)
        if verdict.certainty != "yes":
            reasons.append(f"default: {verdict.reason}")
            default = "ask"
    return attrs.evolve(asks or Decision(default), reasons=tuple(reasons))


def first_match(rules: Sequence[Rule], call: Call) -> tuple[int, Rule] | None:
    """The rule about this call, with its number in the file (from 1)."""
    decision = decide(rules, "ask", call)
    if decision.rule is None or decision.number is None:
        return None
    return decision.number, decision.rule


def choose_option(
    action: Action, options: Iterable[Mapping[str, Any]], about: Sequence[About] = ("tool",)
) -> dict[str, Any] | None:
    """The outcome that carries an action out; None if the client has to be asked.

    Where nothing can be rejected, a denial cancels. Several options that always allow differ in
    what they allow, and several that approve a plan or answer a question are several answers: of
    these none is chosen.
    """
    if action == "ask":
        return None
    offered = [each for each in options if isinstance(each, Mapping)]
    for kind in _OPTION_KINDS[action]:
        ids = [option.get("optionId") for option in offered if option.get("kind") == kind]
        alike = action == "deny" or (kind == "allow_once" and set(about) == {"tool"})
        if len(ids) == 1 or (ids and alike):
            return {"outcome": "selected", "optionId": ids[0]}
    return {"outcome": "cancelled"} if action == "deny" else None


def evident_kinds(call: Mapping[str, Any]) -> frozenset[str]:
    """The kind that a tool call says, and those that its content gives evidence of."""
    kind = str(call.get("kind") or "other")
    run = commands(_parsed(call.get("rawInput")), kind)
    return frozenset(_evident_kinds(kind, run, call.get("content")))


def _verdict_of(holds: bool) -> Verdict:
    return _YES if holds else _NO


def _any(globs: Sequence[str], names: Iterable[str]) -> bool:
    return any(fnmatch.fnmatchcase(name, glob) for name in names for glob in globs)


def _parsed(given: Any) -> Any:
    """The input of a tool; some agents give it as a text of JSON."""
    if isinstance(given, str) and given.lstrip()[:1] in ("{", "["):
        try:
            return json.loads(given)
        except (ValueError, RecursionError):
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
    """Whether a call may be one of an MCP tool, if nothing names the tool for sure.

    Agents make diffs and terminals for built-in tools only. For the rest it is known of some
    agents which kinds MCP tools have; a call of any other agent may be one.
    """
    parts = content if isinstance(content, list) else []
    if any(isinstance(part, Mapping) and part.get("type") in _BUILT_IN for part in parts):
        return False
    if table.mcp_kinds is None:
        return True
    return kind in table.mcp_kinds and not (kind == "execute" and run.texts)


def _options_and_operands(words: Sequence[str]) -> tuple[list[str], list[str]]:
    end = words.index("--") if "--" in words else len(words)
    options = [word for word in words[:end] if word.startswith("-") and word != "-"]
    return options, [word for word in words[:end] if word not in options] + [*words[end + 1 :]]


def _as_paths(words: Iterable[str], cwd: str) -> NamedPaths:
    """Words of a command as paths, and the parts of words that can be paths."""
    texts: list[str] = []
    for word in words:
        first, *parts = re.split("[=:@,]", word)
        texts += [word, *parts]
        if word.startswith("-"):
            texts += [first[2:], first.lstrip("-")]
    return named_paths({"rawInput": {"path": [each for each in texts if each]}}, cwd)
