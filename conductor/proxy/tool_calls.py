"""Tool calls of one session, each merged from the messages about it.

In: updates of tool calls, the tool calls in permission requests, and the ends of turns, in order.
Out: the merged call, and whether it starts or ends. Bounded: an agent that never finishes its calls
loses the oldest (`kept_tool_calls` bounds their bytes).

Agents announce a call before its input is there: Claude with an empty `rawInput`, then one that
grows, opencode with the directory of a command, pi with the letters that the model has written so
far. A call starts once its input is known, or when it runs, ends, needs a permission, or its turn
ends.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from copy import copy
from typing import Any, Final

import attrs

from conductor.bounded_dict import BoundedDict

__all__ = ["AgentToolCall", "ToolCallTable"]

_NOT_STARTED: Final = "pending"
_BESIDE_THE_COMMAND: Final = frozenset(
    {"cwd", "workdir", "directory", "description", "timeout", "is_background", "run_in_background"}
)
"""Members of the input of a command that say how it runs, not what."""

_FINISHED: Final = frozenset({"completed", "failed", "cancelled"})
_MAX_CALLS: Final = 1000
"""Tool calls kept per session; an agent that never finishes them loses the oldest."""


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
        return self.status in _FINISHED

    def merge(self, update: Mapping[str, Any]) -> None:
        """Apply a tool call, or an update of one. Members that are null leave what is known."""
        if update.get("sessionUpdate") == "tool_call_content_chunk":
            content: list[Any] | None = self.members.get("content")
            if content is None or content is not self._chunks:
                self._chunks = self.members["content"] = content = list(self.content)
            content.append(update.get("content"))
            return
        for name, value in update.items():
            if value is not None and name != "sessionUpdate":
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


def _objects(listed: Any) -> list[dict[str, Any]]:
    """The objects in a list; empty if the agent sent no list."""
    return [each for each in listed if isinstance(each, dict)] if isinstance(listed, list) else []


@attrs.define(eq=False)
class ToolCallTable:
    """The tool calls of one session that have not ended."""

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
                ended.merge(update)
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
            self.asked[id].merge(update)
        self._old.discard(id)
        call.merge(update)
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
        call.merge(told)
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
        going_on = [each for each in self.open.values() if each.is_in(background)]
        left = []
        for id, call in self.open.items():
            if id not in self._old and call not in going_on:
                closed = copy(call)  # before its marks are set
                closed.members = {**self.merged(call).members, "status": status}
                left.append(closed)
                call.start()
                call.end()
        self._old = self.open.keys() - {each.id for each in going_on}
        return left
