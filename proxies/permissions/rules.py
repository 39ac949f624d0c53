"""Permission rules: match rules against a tool call, and choose the permission option.

Each condition of a rule evaluates to yes, maybe or no. A rule that allows needs `yes` for all of
them, and must cover everything that the call does; for a rule that denies or asks, `maybe` is
enough. Reads symbolic links; otherwise pure.
"""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final, Literal, TypeAlias

import attrs

from conductor.proxy.permission_options import choose_option
from conductor.proxy.tool_names import About, Certainty
from proxies.shared.paths import real_path
from proxies.shared.regex import compile_pattern
from proxies.shared.tool_calls.call import Call
from proxies.shared.tool_calls.commands import SimpleCommand
from proxies.shared.tool_calls.paths import NamedPaths, named_paths

__all__ = [
    "Action",
    "Decision",
    "Rule",
    "decide",
]

Action: TypeAlias = Literal["allow_once", "allow_always", "deny", "ask"]

_WILD: Final = frozenset("*?[")
"""Characters of wildcards, which some programs expand themselves (git's pathspecs)."""
_MAX_SHOWN: Final = 100
"""Characters of the conditions of a rule in the chat."""
_MAX_TEXT: Final = 65_536
"""Characters of a command or title that a rule may allow."""


def _pattern(instance: Any, field: Any, value: str | None) -> None:
    if value is not None:
        compile_pattern(value)


@attrs.frozen
class Verdict:
    """Whether a rule matches a call; for a near match, the reason says what is missing."""

    certainty: Certainty
    reason: str = ""
    asks: bool = False
    """Whether a rule that denies asks instead: the call does not show what it is about."""


_YES: Final = Verdict("yes")
_NO: Final = Verdict("no")


@attrs.frozen
class Rule:
    """One rule. All its conditions must match; `kind` and globs match if one of the list does."""

    action: Action
    """Action for a request that matches."""
    name: str | None = None
    """The name of the rule in the log and in `audit`; without it, its number."""
    kind: list[str] = attrs.field(factory=list)
    """Kinds of tool calls, such as `read`, `edit` or `execute`."""
    about: list[About] = attrs.field(factory=list)
    """Subject of the request: running a `tool` (default), approving a `plan`, a `question`, or a
    `permission` for the agent itself. `kind: [switch_mode]` implies `plan`."""
    title: str | None = attrs.field(default=None, validator=_pattern)
    """Regular expression that is searched in the title. Beware: the model writes titles."""
    command: str | None = attrs.field(default=None, validator=_pattern)
    """Regular expression. A rule that allows matches it against the whole command, including
    options that write or execute; other rules search it."""
    chained: bool = False
    """Whether an allowing `command` is matched against the whole line, with `$`, `>`, `&`, …;
    otherwise against each command of a plain line."""
    argv: list[str] = attrs.field(factory=list)
    """Commands by their first words, such as `git status`: each of a plain line. Other words must
    match `options`, or be operands that do not lead out of the session's directory."""
    options: list[str] = attrs.field(factory=list)
    """Globs for the options (words that begin with `-`) that `argv` allows."""
    path: list[str] = attrs.field(factory=list)
    """Globs, relative to the session's directory."""
    mcp_tool: list[str] = attrs.field(factory=list)
    """Globs for `server/tool`, or for the tool's name as the agent gives it."""
    session: list[str] = attrs.field(factory=list)
    """Globs for the ids of a session and of those that it is a subagent of. In a session that the
    agent has not announced, a rule that denies or asks matches, and one that allows does not."""
    agent: list[str] = attrs.field(factory=list)
    """Globs for the agent's name in its `initialize` result."""

    def __attrs_post_init__(self) -> None:
        if self.argv and not self.allows:
            raise ValueError("`argv` is for rules that allow; this one needs `command`")
        if self.options and not self.argv:
            raise ValueError("`options` belong to `argv`")

    @property
    def text(self) -> str:
        """Its conditions, as in the chain file."""
        values = attrs.asdict(
            self, filter=lambda field, value: field.name not in ("action", "name")
        )
        lists = {
            name: v if isinstance(v, str) else ", ".join(v)
            for name, v in values.items()
            if v and v is not True
        }
        return "; ".join(f"{name}: {value}" for name, value in lists.items())

    @property
    def allows(self) -> bool:
        return self.action.startswith("allow")

    def matches(self, call: Call) -> bool:
        certainty = self.verdict(call).certainty
        return certainty == "yes" or (certainty == "maybe" and not self.allows)

    def verdict(self, call: Call) -> Verdict:
        """Return the verdict of the least certain condition."""
        worst = _YES
        for each in self._verdicts(call):
            if each.certainty == "no":
                return each
            if each.certainty == "maybe" and (worst is _YES or each.asks):
                worst = each
        return worst

    def _verdicts(self, call: Call) -> Iterator[Verdict]:
        """Yield a verdict per condition. Those without a reason come first: a rule for another
        session is not a near match."""
        if self.session:
            yield self._session(call)
        yield _verdict_of(not self.agent or _any(self.agent, [call.agent]))
        yield self._kind(call)
        if self.title is not None:
            yield _verdict_of(compile_pattern(self.title).search(call.title))
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

    def _session(self, call: Call) -> Verdict:
        """A session that was neither opened nor announced may be of a subagent of any session."""
        if not call.is_placed:
            reason = "the agent has not announced the session"
            return Verdict("no" if self.allows else "maybe", reason)
        return _verdict_of(_any(self.session, [call.session, *call.above]))

    def _kind(self, call: Call) -> Verdict:
        if not self.kind or call.kind in self.kind:
            return _YES
        if not self.allows and not call.kinds.isdisjoint(self.kind):
            return Verdict("maybe")
        return _NO

    def _about(self, call: Call) -> Verdict:
        """A rule that denies or asks may also select a question by its title."""
        named = {*(self.about or ["tool"]), *(["plan"] if "switch_mode" in self.kind else [])}
        if named.issuperset(call.about) or (self.title is not None and not self.allows):
            return _YES
        if not self.allows and not named.isdisjoint(call.about):
            return Verdict("maybe")
        other = next(each for each in call.about if each not in named)
        return Verdict("no", f"the request is about a {other}, which the rule does not name")

    def _tool(self, call: Call) -> Verdict:
        if call.tool.sure:
            certainty = call.tool.matches(self.mcp_tool, allows=self.allows)
            reason = "" if certainty == "no" else f"the tool may be {call.tool}"
            return Verdict(certainty, reason)
        is_other = not call.may_be_mcp or call.tool.excludes(self.mcp_tool)
        if not self.allows and is_other and not call.tool.hints_at(self.mcp_tool):
            return _NO
        return Verdict("maybe", "the tool is not identified for certain")

    def _path(self, call: Call) -> Verdict:
        if not self.allows:
            if not call.paths.touches(self.path) and call.commands.expands():
                return Verdict("maybe", "the command does not show which files it uses", asks=True)
            return _verdict_of(call.paths.touches(self.path))
        checked = [call.paths]
        if call.commands and self.command is None and not self.argv:
            return Verdict("no", "the files of the command are not checked: add `argv`")
        if self.command is not None or self.argv:
            words = [each.words for each in call.commands.simple or ()]
            if not words or None in words:
                return Verdict("maybe", "the files of the command are not certain")
            operands: list[str] = []
            for each in filter(None, words):
                operands += _options_and_operands(each[self._prefix(each) or 1 :])[1]
            both = (call.paths, _as_paths(operands, call.cwd, call.bases))
            checked = [each for each in both if each] or checked
        reasons = (each.not_covered(self.path) for each in checked)
        return next((Verdict("no", reason) for reason in reasons if reason), _YES)

    def _command(self, call: Call, pattern: str) -> Verdict:
        """The title may be truncated or written by the model, so it never allows."""
        if not self.allows:
            title = call.title if call.kind == "execute" else None
            regex = compile_pattern(pattern)
            if any(regex.search(text) for text in call.commands.searched(title) if text):
                return _YES
            if call.commands.expands_program():
                return Verdict("maybe", "the command does not show what it runs", asks=True)
            return _NO
        run = call.commands
        if not run.texts:
            reason = "the agent gives only a title, not the command"
            return Verdict("no", reason if call.kind == "execute" else "")
        regex = compile_pattern(pattern, dot_all=True)
        simple = [each.text for each in run.simple or ()]
        parts = run.texts if self.chained or not simple else simple
        if not all(len(text) <= _MAX_TEXT and regex.fullmatch(text) for text in parts):
            return _NO
        if not self.chained and not simple:
            return Verdict("no", "the command may run or write more (`chained: true` allows it)")
        return self._surely_runs(call)

    def _argv(self, call: Call) -> Verdict:
        if not call.commands.simple:
            reason = call.commands.unclear or "the command may run or write more"
            return Verdict("no", reason if call.commands else "")
        for each in call.commands.simple:
            verdict = self._command_words(call, each)
            if verdict.certainty == "no":
                return verdict
        return self._surely_runs(call)

    def _command_words(self, call: Call, command: SimpleCommand) -> Verdict:
        """Whether `argv` and `options` allow one command."""
        if (words := command.words) is None:
            return Verdict("no", "shells may split the command differently")
        if not (start := self._prefix(words)):
            return _NO
        options, operands = _options_and_operands(words[start:])
        for word in options:
            if not _any(self.options, [word]):
                return Verdict("no", f"the rule does not name the option `{word}`")
        checked = [*options, *([] if self.path else operands)]
        for word in operands:
            if word.startswith(":") or not _WILD.isdisjoint(word):
                return Verdict("no", f"`{word}` may name several files")
        outside = _as_paths(checked, call.cwd, call.bases).outside()
        if outside is not None:
            return Verdict("no", f"`{outside}` is outside of the session's directory")
        return _YES

    def _prefix(self, words: Sequence[str]) -> int:
        """Return how many of a command's first words `argv` matches; 0 if none."""
        named = (each.split() for each in self.argv)
        return max((len(one) for one in named if list(words[: len(one)]) == one), default=0)

    def _surely_runs(self, call: Call) -> Verdict:
        if call.commands.unclear:
            return Verdict("no", call.commands.unclear)
        if real_path(call.cwd) is None:
            return Verdict("no", "the directory of the session is not known")
        outside = _as_paths(call.commands.directories, call.cwd).outside()
        if outside is not None:
            return Verdict("no", f"it runs outside of the session's directory, in `{outside}`")
        return _YES

    def _covers_the_rest(self, call: Call) -> Verdict:
        """Check that the call does nothing that the rule does not name."""
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
            return Verdict("maybe", "the request names neither kind nor tool: add `kind: [other]`")
        return _YES


@attrs.frozen
class Decision:
    """The action for a call, and the rule that decided it."""

    action: Action
    number: int | None = None
    """The rule's number in the file, from 1; `None` for the default."""
    rule: Rule | None = None
    option: str | None = None
    """The id of the option to choose; without one, a denial cancels."""
    reasons: tuple[str, ...] = ()
    """Why earlier rules, or the default, did not decide."""

    @property
    def name(self) -> str:
        return (self.rule.name if self.rule else None) or (
            f"rule {self.number}" if self.number else "default"
        )

    @property
    def rule_text(self) -> str:
        """The rule for the user: its name, or its number and conditions."""
        if self.rule is None:
            return "the default"
        if self.rule.name:
            return f"rule {self.rule.name}"
        text = " ".join(self.rule.text.split())[:_MAX_SHOWN]
        return f"rule {self.number}" + (f" ({text})" if text else "")


def decide(
    rules: Sequence[Rule], default: Action, call: Call, options: Iterable[Any] | None = None
) -> Decision:
    """Return the decision of the first rule that matches, with the option that it chooses.

    If no option is what the rule allows, the client is asked. Without `options`, only the action is
    decided.
    """
    decision = _first_match(rules, default, call)
    if decision.action == "ask" or options is None:
        return decision
    is_tool = call.tool.sure and call.about == ("tool",)
    option = choose_option(decision.action, options, is_tool=is_tool)
    if option is None and decision.action != "deny":
        reason = f"{decision.name}: the options are answers, or allow more than {decision.action}"
        return attrs.evolve(decision, action="ask", reasons=(*decision.reasons, reason))
    return attrs.evolve(decision, option=option)


def _first_match(rules: Sequence[Rule], default: Action, call: Call) -> Decision:
    """Return the decision of the first rule that matches, without regard to the options.

    A later rule that denies overrides one that asks and matches only maybe. A rule that denies a
    path or a command asks if the command hides it in an expansion (`$(…)`, `$X`).
    """
    reasons: list[str] = []
    asks: Decision | None = None
    for number, rule in enumerate(rules, 1):
        verdict = rule.verdict(call)
        action = "ask" if verdict.asks and not rule.allows else rule.action
        decision = Decision(action, number, rule)
        if verdict.certainty == "yes" or (verdict.certainty == "maybe" and action == "deny"):
            if asks is not None and action != "deny":
                decision = asks
            return attrs.evolve(decision, reasons=tuple(reasons))
        if verdict.certainty == "maybe" and action == "ask":
            asks = asks or decision
        elif verdict.reason:
            reasons.append(f"{decision.name}: {verdict.reason}")
    if asks is None and default.startswith("allow"):
        verdict = Rule(default).verdict(call)
        if verdict.certainty != "yes":
            reasons.append(f"default: {verdict.reason}")
            default = "ask"
    return attrs.evolve(asks or Decision(default), reasons=tuple(reasons))


def _verdict_of(holds: bool) -> Verdict:
    return _YES if holds else _NO


def _any(globs: Sequence[str], names: Iterable[str]) -> bool:
    return any(fnmatch.fnmatchcase(name, glob) for name in names for glob in globs)


def _options_and_operands(words: Sequence[str]) -> tuple[list[str], list[str]]:
    """Words after `--` are both: some programs pass them on, as options, to another one."""
    end = words.index("--") if "--" in words else len(words)
    options = [word for word in words if word.startswith("-") and word not in ("-", "--")]
    return options, [word for word in words[:end] if word not in options] + [*words[end + 1 :]]


def _as_paths(words: Iterable[str], cwd: str, bases: Sequence[str] = ()) -> NamedPaths:
    """Return the words of a command as paths, plus parts of words that can be paths."""
    texts: list[str] = []
    for word in words:
        first, *parts = re.split("[=:@,]", word)
        texts += [word, *parts]
        if word.startswith("-"):
            texts += [first[2:], first.lstrip("-")]
    named = {"rawInput": {"path": [each for each in texts if each]}}
    return named_paths(named, cwd, more_bases=bases)
