"""View model of a session for `prompt`, from its updates. Pure: no terminal, no clock.

`View.apply` takes an update and returns the blocks that are finished, in order: they are printed
once and stay. The parts that may still change (the end of the answer, running tool calls, the
plan) are read from the view. Text is untrusted and unchanged; the display removes control
characters.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final, TypeAlias

import attrs

from conductor.acp.sessions import AgentToolCall
from conductor.cli.prompt.content import (
    FileDiff,
    as_mapping,
    content_text,
    diffs_of,
    message_text,
    notice_text,
)

__all__ = [
    "Answer",
    "Block",
    "MarkdownStream",
    "Note",
    "PastPrompt",
    "ShownCall",
    "ShownPlanEntry",
    "Thought",
    "View",
]

_fence: Final = re.compile(r" {0,3}(`{3,}|~{3,})")


@attrs.frozen
class Answer:
    """A piece of the agent's answer: whole blocks of Markdown."""

    text: str


@attrs.frozen
class Thought:
    text: str


@attrs.frozen
class PastPrompt:
    """A prompt of the history."""

    text: str


@attrs.frozen
class Note:
    """A line about the session."""

    text: str


@attrs.define
class ShownCall:
    """A tool call, with the times of its first and its last update."""

    call: AgentToolCall
    began: float = 0.0
    ended: float | None = None
    seen_diffs: Sequence[FileDiff] = ()
    """Those that a permission question has shown."""

    @property
    def title(self) -> str:
        return self.call.title or self.call.id

    @property
    def diffs(self) -> tuple[FileDiff, ...]:
        return diffs_of(self.call.content)

    @property
    def output(self) -> str:
        texts = (content_text(each.get("content")) for each in self.call.content)
        return "\n".join(filter(None, texts))

    def seconds(self, now: float) -> float:
        return (now if self.ended is None else self.ended) - self.began


@attrs.frozen
class ShownPlanEntry:
    text: str
    status: str


Block: TypeAlias = Answer | Thought | PastPrompt | Note | ShownCall


@attrs.define(eq=False)
class MarkdownStream:
    """The text of one message, split into whole blocks, so that each is rendered and printed once.

    A block ends at a blank line outside of a code fence, if the next line is not indented (which
    would continue a list item).
    """

    _lines: list[str] = attrs.field(factory=list, init=False)
    """Whole lines of the unfinished block."""
    _line: str = attrs.field(default="", init=False)
    _fence: str = attrs.field(default="", init=False)
    """The fence that is open."""
    _after_blank: bool = attrs.field(default=False, init=False)

    @property
    def tail(self) -> str:
        """The unfinished block."""
        return "".join(self._lines) + self._line

    def feed(self, text: str) -> list[str]:
        """Add text; return the blocks that it has finished."""
        finished = []
        for line in text.splitlines(keepends=True):
            if not self._line and self._after_blank and not line[0].isspace():
                finished.append("".join(self._lines))
                self._lines, self._after_blank = [], False
            self._line += line
            if self._line.endswith("\n"):
                self._end_line()
        return finished

    def _end_line(self) -> None:
        found = _fence.match(self._line)
        if found and not self._fence:
            self._fence = found[1]
        elif found and found[1].startswith(self._fence) and not self._line[found.end() :].strip():
            self._fence = ""
        self._after_blank = not self._line.strip() and not self._fence
        self._lines.append(self._line)
        self._line = ""


@attrs.define(eq=False)
class View:
    """The state of one session."""

    calls: dict[str, ShownCall] = attrs.field(factory=dict, init=False)
    """The tool calls of the turn, by id."""
    plan: Sequence[ShownPlanEntry] = attrs.field(default=(), init=False)
    """The plan that was told last."""
    _plan_id: Any = attrs.field(default=None, init=False)
    _stream: MarkdownStream = attrs.field(factory=MarkdownStream, init=False)
    _kind: str = attrs.field(default="", init=False)
    """The kind of message that the stream has."""
    _streamed: set[str] = attrs.field(factory=set, init=False)
    """Ids of messages (version 2) with chunks."""

    @property
    def tail(self) -> Block | None:
        """The unfinished end of the text."""
        return _block(self._kind, self._stream.tail)

    @property
    def running(self) -> list[ShownCall]:
        return [call for call in self.calls.values() if call.ended is None]

    def begin_turn(self) -> None:
        self.calls.clear()
        self.plan = ()

    def apply(self, update: Mapping[str, Any], now: float) -> list[Block]:
        """Take an update that arrived at `now` (seconds); return the finished blocks."""
        match update.get("sessionUpdate"):
            case "agent_message_chunk" | "agent_thought_chunk" | "user_message_chunk" as kind:
                self._streamed.add(str(update.get("messageId")))
                text = content_text(update.get("content"))
                return self._add_text(kind.removesuffix("_chunk"), text)
            case "agent_message" | "agent_thought" as kind:  # of version 2
                if str(update.get("messageId")) in self._streamed:
                    return []
                return [*self._add_text(kind, message_text(update)), *self.flush()]
            case "tool_call" | "tool_call_update" | "tool_call_content_chunk":
                return self._change_call(update, now)
            case "plan":
                return self._change_plan(update.get("entries"))
            case "plan_update":
                plan = as_mapping(update.get("plan"))
                self._plan_id = plan.get("planId")
                return self._change_plan(plan.get("entries"))
            case "plan_removed" if update.get("planId") == self._plan_id:
                self.plan = ()
            case "current_mode_update":
                return [*self.flush(), Note(f"mode: {update.get('currentModeId')}")]
            case "notice":
                return [*self.flush(), Note(notice_text(update))]
        return []

    def merge_call(self, update: Mapping[str, Any], now: float) -> ShownCall:
        """Merge an update, or the tool call of a permission request; return the whole call."""
        id = str(update.get("toolCallId", ""))
        shown = self.calls.get(id) or ShownCall(AgentToolCall(id), began=now)
        if id:
            self.calls[id] = shown
        shown.call.merge(update, version=1)
        if shown.call.is_finished and shown.ended is None:
            shown.ended = now
        return shown

    def flush(self) -> list[Block]:
        """End the text; return its last block."""
        block = self.tail
        self._stream = MarkdownStream()
        self._kind = ""
        return [] if block is None else [block]

    def end_turn(self) -> list[Block]:
        """The blocks that are left at the end of a turn, tool calls that did not end included."""
        left: list[Block] = [*self.flush(), *self.running]
        self.calls.clear()
        return left

    def _add_text(self, kind: str, text: str) -> list[Block]:
        finished = self.flush() if kind != self._kind else []
        self._kind = kind
        blocks = (_block(kind, piece) for piece in self._stream.feed(text))
        return [*finished, *(block for block in blocks if block is not None)]

    def _change_call(self, update: Mapping[str, Any], now: float) -> list[Block]:
        known = self.calls.get(str(update.get("toolCallId", "")))
        had_ended = known is not None and known.ended is not None
        shown = self.merge_call(update, now)
        finished = self.flush() if known is None else []
        return finished if shown.ended is None or had_ended else [*finished, shown]

    def _change_plan(self, entries: Any) -> list[Block]:
        listed = map(as_mapping, entries if isinstance(entries, list) else ())
        self.plan = [
            ShownPlanEntry(str(each.get("content")), str(each.get("status"))) for each in listed
        ]
        return self.flush()


def _block(kind: str, text: str) -> Block | None:
    if not text.strip():
        return None
    match kind:
        case "agent_thought":
            return Thought(text)
        case "user_message":
            return PastPrompt(text)
    return Answer(text)
