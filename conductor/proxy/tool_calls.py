"""Tool calls of one session, each merged from the messages about it.

In: updates of tool calls, and the tool calls in permission requests, in the order in which they
pass. Out: the merged call, and whether it starts or ends. Bounded: an agent that never finishes its
calls loses the oldest (`kept_tool_calls` bounds their bytes).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any, Final

import attrs

from conductor.bounded_dict import BoundedDict

__all__ = ["AgentToolCall", "ToolCallTable"]

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
        return str(self.members.get("status") or "pending")

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

        Returns the call, whether it starts, and whether it is finished now. An update of
        a call that has finished changes nothing; a `tool_call` may use its id again, also that of a
        call of an earlier turn that the agent has never finished.
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
        starts = call is None
        if call is None:
            call = self.open[id] = AgentToolCall(id)
        elif again:
            starts = id in self._old
            call.members.clear()
        if again:
            self.asked.pop(id, None)
        elif id in self.asked:
            self.asked[id].merge(update)
        self._old.discard(id)
        call.merge(update)
        return call, starts, call.is_finished

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

    def turn_ended(self) -> None:
        """Record the end of a turn: the calls that are open now are those of an old turn."""
        self._old = set(self.open)
