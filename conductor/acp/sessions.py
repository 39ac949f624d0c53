"""What is known of a session, merged from its messages: set-up, settings, tool calls, usage. Pure.

In: decoded params and results of requests, and updates, of protocol versions 1 and 2. Out: the
state after them. An update replaces what it tells (mode, options, title), is merged into it by the
names of its members (tool calls), or is appended (content of tool calls). A member that is null
leaves what is known of a tool call in version 1, and clears it in version 2.

Agents announce a call before its input is there: Claude with an empty `rawInput`, then one that
grows, opencode with the directory of a command, pi with the letters that the model has written so
far. A call starts once its input is known, or when it runs, ends, needs a permission, or its turn
ends.

Tokens are reported at a turn's end: in the response to the prompt (version 1) or in the idle state
update (version 2). The specification has not settled whether they are those of the turn or of the
session so far.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from copy import copy
from typing import Any, Final, Literal, TypeAlias

import attrs

from conductor.bounded_dict import BoundedDict
from conductor.schema.convert import dumps
from conductor.setting_forms import current_value, state_after

__all__ = [
    "FINISHED",
    "TOKEN_CATEGORIES",
    "AgentToolCall",
    "Counting",
    "OpenedBy",
    "SessionFacts",
    "ToolCallMemory",
    "ToolCallTable",
    "UsageDelta",
    "UsageMeter",
]

OpenedBy: TypeAlias = Literal["new", "load", "resume", "fork"]
Counting: TypeAlias = Literal["turn", "session"]
"""Scope of the tokens reported at the end of a turn: that turn, or the session so far."""

FINISHED: Final = ("completed", "failed", "cancelled")
"""The statuses of a tool call that has ended; a tuple, since an agent may send any JSON value."""
TOKEN_CATEGORIES: Final[Mapping[str, str]] = {
    "inputTokens": "input",
    "outputTokens": "output",
    "thoughtTokens": "thought",
    "cachedReadTokens": "cache read",
    "cachedWriteTokens": "cache write",
}
"""The categories of tokens on the wire, with words for them."""
_TOTAL: Final = "totalTokens"
_MAX_TOKENS: Final = 10**12
"""Upper bound for a reported number such as 1e999: sums stay representable in JSON."""

_NOT_STARTED: Final = "pending"
_BESIDE_THE_COMMAND: Final = frozenset(
    {"cwd", "workdir", "directory", "description", "timeout", "is_background", "run_in_background"}
)
"""Members of the input of a command that say how it runs, not what."""
_MAX_CALLS: Final = 1000
"""Tool calls kept per session; an agent that never finishes them loses the oldest."""
_MAX_BYTES: Final = 32 * 1024 * 1024
"""Bytes about tool calls after which those that are kept are measured (`ToolCallMemory`)."""


@attrs.define
class AgentToolCall:
    """A tool call of the agent, merged from all messages about it so far."""

    id: str
    members: dict[str, Any] = attrs.field(factory=dict)
    """All members, as on the wire."""
    _chunks: list[Any] | None = attrs.field(default=None, init=False, eq=False, repr=False)
    """The content that chunks are appended to; that of a message is not changed."""
    _has_started: bool = attrs.field(default=False, init=False, eq=False, repr=False)
    _has_ended: bool = attrs.field(default=False, init=False, eq=False, repr=False)
    """Whether it counts as ended, although the agent has left it unfinished."""

    @property
    def title(self) -> str:
        """Title for display; empty if the agent sent none."""
        return str(self.members.get("title") or "")

    @property
    def kind(self) -> str:
        """`read`, `edit`, `execute`, …; `other` if the agent sent none."""
        return str(self.members.get("kind") or "other")

    @property
    def status(self) -> str:
        """`pending`, `in_progress`, `completed`, `failed` or `cancelled`."""
        return str(self.members.get("status") or _NOT_STARTED)

    @property
    def name(self) -> str | None:
        """The programmatic name of the tool, if the agent sends it."""
        name = self.members.get("name")
        return name if isinstance(name, str) else None

    @property
    def raw_input(self) -> Any:
        """The arguments of the tool, in the agent's own form."""
        return self.members.get("rawInput")

    @property
    def raw_output(self) -> Any:
        """The result of the tool, in the agent's own form."""
        return self.members.get("rawOutput")

    @property
    def content(self) -> Sequence[Any]:
        """Output of the tool: texts, diffs and terminals, as plain JSON objects."""
        return _objects(self.members.get("content"))

    @property
    def locations(self) -> Sequence[Any]:
        """The files that it works on: `{"path": "/project/a.py", "line": 7}`, `line` may be
        absent. Locations without a path are left out, as in the schema's type."""
        listed = _objects(self.members.get("locations"))
        return [each for each in listed if isinstance(each.get("path"), str)]

    @property
    def is_finished(self) -> bool:
        """Whether it is completed, failed or cancelled."""
        return self.status in FINISHED

    def merge(self, update: Mapping[str, Any], version: int) -> None:
        """Apply a tool call, or an update of one."""
        if update.get("sessionUpdate") == "tool_call_content_chunk":
            content: list[Any] | None = self.members.get("content")
            if content is None or content is not self._chunks:
                self._chunks = self.members["content"] = content = list(self.content)
            content.append(update.get("content"))
            return
        for name, value in update.items():
            if name == "sessionUpdate":
                continue
            if value is None:
                if version > 1:
                    self.members.pop(name, None)
            elif name == "_meta" and version > 1:
                self.members[name] = _patched(self.members.get(name), value)
            else:
                self.members[name] = value

    def start(self) -> bool:
        """Record the start; returns whether it is the first."""
        is_first, self._has_started = not self._has_started, True
        return is_first

    def end(self) -> bool:
        """Record the end; returns whether it is the first."""
        is_first, self._has_ended = not self._has_ended, True
        return is_first

    def is_in(self, background: Sequence[Any]) -> bool:
        """Whether it goes on after its turn: it is paused, or the agent lists it, or its terminal,
        as background work. So does a running call beside work of a kind that names no call."""
        if self.status == "paused":
            return True
        own = {each.get("terminalId") for each in self.content if each.get("type") == "terminal"}
        for work in background:
            match work:
                case {"type": "tool_call", "toolCallId": id}:
                    goes_on = id == self.id
                case {"type": "terminal", "terminalId": id}:
                    goes_on = id in own
                case _:
                    goes_on = self.status == "in_progress"
            if goes_on:
                return True
        return False

    def input_is_known(self, update: Mapping[str, Any], *, announces: bool) -> bool:
        """Whether the call runs, or its input is complete, as far as this latest update tells."""
        if self.status != _NOT_STARTED:
            return True
        given = self.raw_input
        if announces and given is None:
            return "status" not in update  # an agent that tells neither
        if not announces:
            # One that says again that the call is pending will also say when it runs.
            if "status" in update or "rawInput" not in update:
                return False
            if self.kind == "edit" and not any(each.get("type") == "diff" for each in self.content):
                return False
        elif not given:
            return False
        if self.kind == "execute" and isinstance(given, dict):
            return not given.keys() <= _BESIDE_THE_COMMAND
        return True


def _patched(meta: Any, patch: Any) -> Any:
    """`_meta` after an update of version 2: it is merged by its keys, null removes one."""
    if not isinstance(patch, dict):
        return patch
    merged = {**meta, **patch} if isinstance(meta, dict) else patch
    return {name: each for name, each in merged.items() if each is not None}


def _objects(listed: Any) -> list[dict[str, Any]]:
    """The objects in a list; empty if the agent sent no list."""
    return [each for each in listed if isinstance(each, dict)] if isinstance(listed, list) else []


@attrs.define(eq=False)
class ToolCallTable:
    """The tool calls of one session that have not ended."""

    version: int = 1
    """Of the protocol."""
    open: dict[str, AgentToolCall] = attrs.field(factory=lambda: BoundedDict(_MAX_CALLS))
    """By id, merged from the updates."""
    asked: dict[str, AgentToolCall] = attrs.field(factory=lambda: BoundedDict(_MAX_CALLS))
    """Tool calls of permission requests, merged with the updates before and since."""
    _old: set[str] = attrs.field(factory=set)
    """Calls that were unfinished at the end of their turn."""
    _ended: deque[str] = attrs.field(factory=lambda: deque(maxlen=_MAX_CALLS))

    def update(self, update: Mapping[str, Any]) -> tuple[AgentToolCall, bool, bool]:
        """Record an update of a tool call.

        Returns the call, whether it starts, and whether it ends now, each once. An update of a call
        that has finished changes nothing; a `tool_call` may use its id again, also that of a call
        of an earlier turn that the agent has never finished.
        """
        id = str(update.get("toolCallId", ""))
        call = self.open.get(id)
        again = update.get("sessionUpdate") == "tool_call"
        if call is None and id in self._ended:
            if not again:
                ended = AgentToolCall(id)
                ended.merge(update, self.version)
                return ended, False, False
            self._ended.remove(id)
        announces = again or call is None
        if call is None or (again and id in self._old):
            call = self.open[id] = AgentToolCall(id)
        elif again:
            call.members.clear()
        if again:
            self.asked.pop(id, None)
        elif id in self.asked:
            self.asked[id].merge(update, self.version)
        self._old.discard(id)
        call.merge(update, self.version)
        starts = call.input_is_known(update, announces=announces) and call.start()
        return call, starts, call.is_finished and call.end()

    def forget_ended(self, call: AgentToolCall) -> None:
        """Drop a tool call that has ended, once its last update was handled."""
        if call.is_finished and self.open.get(call.id) is call:
            del self.open[call.id]
            self._ended.append(call.id)
            self.asked.pop(call.id, None)

    def update_asked(self, told: Mapping[str, Any]) -> AgentToolCall:
        """Record the tool call in a permission request, which the agent may not have announced.

        Returns it merged from all updates and permission requests about it.
        """
        id = str(told.get("toolCallId", ""))
        call = self.asked.get(id)
        if call is None:
            announced = self.open.get(id)
            call = AgentToolCall(id, {} if announced is None else dict(announced.members))
        call.merge(told, self.version)
        if id and not call.is_finished:
            self.asked[id] = call
        return call

    def told_in(self, params: Mapping[str, Any]) -> Any:
        """The tool call in a permission request; of version 2 also that of a command, which may be
        known by its id. `None` if it is about none."""
        told, subject = params.get("toolCall"), params.get("subject")
        if told is not None or not isinstance(subject, dict):
            return told
        if subject.get("type") != "command":
            return subject.get("toolCall")
        id = str(subject.get("toolCallId") or "")
        known = self.open.get(id) or AgentToolCall(id)
        given = known.raw_input if isinstance(known.raw_input, dict) else {}
        runs = {name: subject[name] for name in ("command", "cwd") if name in subject}
        kind = known.members.get("kind") or "execute"
        return {"toolCallId": id, "kind": kind, "rawInput": {**given, **runs}}

    def starting(self, told: Mapping[str, Any]) -> AgentToolCall | None:
        """The announced call of a permission request, merged with it, if it has not started: it
        starts now."""
        call = self.open.get(str(told.get("toolCallId", "")))
        if call is None:
            return None
        asked = self.update_asked(told)  # what was announced stays apart, as evidence
        return asked if call.start() else None

    def merged(self, call: AgentToolCall) -> AgentToolCall:
        """The call with what its permission request has told."""
        return self.asked.get(call.id, call)

    def turn_ended(self, status: str, background: Sequence[Any] = ()) -> list[AgentToolCall]:
        """Record the end of a turn; returns copies of the calls that the agent has left unfinished
        in it, with this status.

        `background` is the work that it says goes on (version 2). It may go on with the others too:
        they are kept, and are those of an old turn.
        """
        left, old = [], set()
        for id, call in self.open.items():
            if call.is_in(background):
                continue
            old.add(id)
            if id not in self._old:
                closed = copy(call)  # before its marks are set
                closed.members = {**self.merged(call).members, "status": status}
                left.append(closed)
                call.start()
                call.end()
        self._old = old
        return left


@attrs.define(eq=False)
class ToolCallMemory:
    """The bound of what is kept of the tool calls of all sessions.

    An agent can announce calls that never end, with outputs of any size, in any number of sessions.
    When it has sent `_MAX_BYTES` about tool calls, the kept ones are measured; if they are larger
    than half of that, the largest lose their outputs, and if that is not enough, they are
    forgotten. The members that permission rules read (kind, input, paths, diffs) stay as long as
    possible.
    """

    _size: int = 0
    _has_forgotten: bool = False

    def add(self, size: int, tables: Iterable[ToolCallTable]) -> bool:
        """Count `size` bytes about tool calls; drop what is too much. Returns whether something is
        dropped for the first time."""
        self._size += size
        if self._size <= _MAX_BYTES:
            return False
        kept = [
            (_size(call), call, calls)
            for table in tables
            for calls in (table.open, table.asked)
            for call in calls.values()
        ]
        kept.sort(key=lambda each: each[0])
        self._size = sum(size for size, _, _ in kept)
        is_first = False
        while kept and self._size > _MAX_BYTES // 2:
            before, call, calls = kept.pop()
            call.members.pop("rawOutput", None)
            call.members["content"] = [e for e in call.content if e.get("type") != "content"]
            left = _size(call)
            if left > before // 2:
                del calls[call.id]
                left = 0
            self._size -= before - left
            is_first, self._has_forgotten = is_first or not self._has_forgotten, True
        return is_first


def _size(call: AgentToolCall) -> int:
    return len(dumps(call.members))


@attrs.define(eq=False)
class SessionFacts:
    """What is known of one session."""

    id: str = ""
    opened_by: OpenedBy | None = None
    """The request that opened it; `None` for a session that the plugin has not seen opened, such
    as that of a subagent."""
    forked_from: str | None = None
    """The session that it was forked from."""
    parent: str | None = None
    """The session that a subagent's session belongs to."""
    cwd: str = ""
    additional_directories: list[str] = attrs.field(factory=list)
    mcp_servers: list[dict[str, Any]] = attrs.field(factory=list)
    """The declarations of MCP servers in the set-up request."""
    title: str | None = None
    mode: str | None = None
    config_options: list[dict[str, Any]] = attrs.field(factory=list)
    call_table: ToolCallTable = attrs.field(factory=ToolCallTable, repr=False)

    def set_up(self, method: str, params: Mapping[str, Any]) -> None:
        """Record the set-up request."""
        self.opened_by = method.removeprefix("session/")  # type: ignore[assignment]
        if self.opened_by in ("new", "fork"):
            self.parent = None  # the agent may have announced the id before
        self.forked_from = params.get("sessionId") if self.opened_by == "fork" else None
        cwd = params.get("cwd")
        self.cwd = cwd if isinstance(cwd, str) else ""
        directories = params.get("additionalDirectories")
        listed = directories if isinstance(directories, list) else []
        self.additional_directories = [each for each in listed if isinstance(each, str)]
        self.mcp_servers = _objects(params.get("mcpServers"))

    def placed_below(self, parent: SessionFacts, update: Mapping[str, Any]) -> None:
        """Record that a subagent of `parent` has this session: it has the directories and the MCP
        servers of its parent, unless the update tells others."""
        self.parent = parent.id
        self.mcp_servers = parent.mcp_servers
        if "cwd" in update or not self.cwd:
            cwd = update.get("cwd")
            self.cwd = cwd if isinstance(cwd, str) and cwd else parent.cwd
        if "additionalDirectories" in update or not self.additional_directories:
            told = update.get("additionalDirectories")
            directories = told if isinstance(told, list) else parent.additional_directories
            self.additional_directories = [each for each in directories if isinstance(each, str)]

    def answered(self, result: Mapping[str, Any]) -> None:
        """Record the response to a set-up request, or to one that sets an option."""
        if isinstance(result.get("configOptions"), list):
            self.config_options = _objects(result["configOptions"])
        if isinstance(mode := current_value("mode", result), str):
            self.mode = mode

    def mode_set(self, mode: Any) -> None:
        """Record the mode that was set, or that an update tells."""
        if isinstance(mode, str):
            self.mode = mode
            state = {"configOptions": self.config_options}
            self.config_options = state_after(state, "mode", mode, {})["configOptions"]

    def update(self, update: Mapping[str, Any]) -> None:
        """Record an update of the session; those of tool calls are for `call_table`."""
        match update:
            case {"sessionUpdate": "current_mode_update"}:
                self.mode_set(update.get("currentModeId"))
            case {"sessionUpdate": "config_option_update"}:
                self.answered(update)
            case {"sessionUpdate": "session_info_update", "title": str() | None as title}:
                self.title = title


@attrs.frozen
class UsageDelta:
    """Usage added by one message."""

    turns: int = 0
    tokens: int = 0
    cost: Mapping[str, float] = attrs.field(factory=dict)
    """By currency."""


@attrs.define
class UsageMeter:
    """Sums of one session."""

    counting: Counting = "turn"
    restored: bool = False
    """Whether the session was loaded: the usage in its first report was spent earlier."""
    turns: int = 0
    tokens: dict[str, int] = attrs.field(factory=dict)
    """By the wire's name of the category, and the total."""
    cost: dict[str, float] = attrs.field(factory=dict)
    used: int | None = None
    size: int | None = None
    """Size of the context window; `used` are the tokens in it."""

    def update(self, update: Mapping[str, Any]) -> UsageDelta:
        """Read a `usage_update`; return the usage that it adds."""
        if update.get("sessionUpdate") != "usage_update":
            return UsageDelta()
        self.used, self.size = update.get("used"), update.get("size")
        return UsageDelta(cost=self._cost(update.get("cost")))

    def turn(self, usage: Mapping[str, Any] | None) -> UsageDelta:
        """Add a turn with the tokens that the agent reported at its end (`TurnEnd.usage`)."""
        self.turns += 1
        before = self.tokens.get(_TOTAL, 0)
        for name in (*TOKEN_CATEGORIES, _TOTAL):
            if isinstance(count := (usage or {}).get(name), int):
                count = min(max(count, 0), _MAX_TOKENS)
                add = self.counting == "turn"
                self.tokens[name] = self.tokens.get(name, 0) + count if add else count
        now = self.tokens.get(_TOTAL, 0)
        first, self.restored = self.restored and self.counting == "session", False
        return UsageDelta(turns=1, tokens=0 if first else max(0, now - before))

    def _cost(self, cost: Any) -> dict[str, float]:
        if not isinstance(cost, dict) or not isinstance(cost.get("amount"), int | float):
            return {}
        currency, amount = str(cost.get("currency", "?")), cost["amount"]
        amount = float(min(max(amount, 0), _MAX_TOKENS))
        before = self.cost.get(currency, amount if self.restored else 0.0)
        self.cost[currency] = amount
        return {currency: max(0.0, amount - before)}
