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

from conductor.acp.sessions import FINISHED
from conductor.bounded_dict import BoundedDict
from conductor.cli.prompt.content import (
    FileDiff,
    as_mapping,
    content_text,
    diffs_of,
    paths_of,
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

_MAX_CALLS: Final = 1000
"""Tool calls, and ids of messages, that are remembered of a turn."""
_MAX_BLOCK: Final = 64 * 1024
"""Characters after which a block is split anywhere."""
_fence: Final = re.compile(r" {0,3}(`{3,}|~{3,})")


@attrs.frozen
class Answer:
    """A piece of the agent's answer: whole blocks of Markdown."""

    markdown: str


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


@attrs.frozen
class ShownCall:
    """A tool call; `seconds` is the time from its first update to its last."""

    id: str
    title: str
    kind: str = ""
    status: str = "pending"
    began: float = 0.0
    ended: float | None = None
    diffs: tuple[FileDiff, ...] = ()
    output: str = ""
    paths: tuple[str, ...] = ()

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
    _size: int = attrs.field(default=0, init=False)

    @property
    def tail(self) -> str:
        """The unfinished block."""
        return "".join(self._lines) + self._line

    def feed(self, text: str) -> list[str]:
        """Add text; return the blocks that it has finished."""
        finished = []
        for line in text.splitlines(keepends=True):
            if not self._line and self._begins_block(line):
                finished.append(self._take())
            self._line += line
            self._size += len(line)
            if self._line.endswith("\n"):
                self._end_line()
            if self._size > _MAX_BLOCK:
                self._lines.append(self._line)
                self._line = ""
                finished.append(self._take())
        return finished

    def _begins_block(self, line: str) -> bool:
        return self._after_blank and not line[0].isspace()

    def _end_line(self) -> None:
        found = _fence.match(self._line)
        if found and not self._fence:
            self._fence = found[1]
        elif found and found[1].startswith(self._fence) and not self._line[found.end() :].strip():
            self._fence = ""
        self._after_blank = not self._line.strip() and not self._fence
        self._lines.append(self._line)
        self._line = ""

    def _take(self) -> str:
        block = "".join(self._lines)
        self._lines, self._size, self._after_blank = [], 0, False
        return block


@attrs.define(eq=False)
class View:
    """The state of one session."""

    calls: BoundedDict[str, ShownCall] = attrs.field(
        factory=lambda: BoundedDict(_MAX_CALLS), init=False
    )
    """The tool calls of the turn, by id."""
    plan: tuple[ShownPlanEntry, ...] = attrs.field(default=(), init=False)
    """The plan that was told last."""
    _plan_id: Any = attrs.field(default=None, init=False)
    commands: tuple[tuple[str, str], ...] = attrs.field(default=(), init=False)
    """Name and description of the agent's slash commands."""
    _stream: MarkdownStream = attrs.field(factory=MarkdownStream, init=False)
    _kind: str = attrs.field(default="", init=False)
    """The kind of chunk that the stream has."""
    _streamed: BoundedDict[str, None] = attrs.field(
        factory=lambda: BoundedDict(_MAX_CALLS), init=False
    )

    @property
    def tail(self) -> Block | None:
        """The unfinished end of the text."""
        return _block(self._kind, self._stream.tail) if self._stream.tail.strip() else None

    @property
    def running(self) -> list[ShownCall]:
        return [call for call in self.calls.values() if call.ended is None]

    def begin_turn(self) -> None:
        self.calls.clear()
        self._streamed.clear()
        self.plan = ()

    def apply(self, update: Mapping[str, Any], now: float) -> list[Block]:
        """Take an update that arrived at `now` (seconds); return the finished blocks."""
        match update.get("sessionUpdate"):
            case "agent_message_chunk" | "agent_thought_chunk" | "user_message_chunk" as kind:
                self._streamed[str(update.get("messageId"))] = None
                return self._add_text(kind, content_text(update.get("content")))
            case "agent_message" | "agent_thought" | "user_message" as kind:
                return self._add_message(kind, update)
            case "tool_call" | "tool_call_update":
                return self._change_call(update, now)
            case "tool_call_content_chunk":
                content = [update.get("content")]
                return self._change_call({**update, "content": content}, now, adds=True)
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
                about = f"{update.get('severity')}: {update.get('title')}"
                more = update.get("description")
                return [*self.flush(), Note(f"{about}; {more}" if more else about)]
            case "available_commands_update":
                self.set_commands(update)
        return []

    def set_commands(self, holder: Mapping[str, Any]) -> None:
        """Read `availableCommands` of an update or of a version 2 session's result."""
        listed = holder.get("availableCommands")
        self.commands = tuple(
            (str(each["name"]), str(each.get("description") or ""))
            for each in (listed if isinstance(listed, list) else ())
            if isinstance(each, Mapping) and isinstance(each.get("name"), str)
        )

    def merge_call(self, call: Mapping[str, Any], now: float) -> ShownCall:
        """Merge the tool call of a permission request; return all known members of the call."""
        if "toolCallId" not in call:
            return ShownCall("", str(call.get("title") or ""), paths=paths_of(call))
        id = str(call["toolCallId"])
        changed = self.calls[id] = _changed(self.calls.get(id), id, call, now, adds=False)
        return changed

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
        kind = kind.removesuffix("_chunk")
        finished = self.flush() if kind != self._kind else []
        self._kind = kind
        for piece in self._stream.feed(text):
            if (block := _block(kind, piece)) is not None:
                finished.append(block)
        return finished

    def _add_message(self, kind: str, update: Mapping[str, Any]) -> list[Block]:
        """A whole message of version 2, unless its chunks were shown; not the user's own."""
        if kind == "user_message" or str(update.get("messageId")) in self._streamed:
            return []
        content = update.get("content")
        text = "".join(map(content_text, content if isinstance(content, list) else ()))
        return [*self._add_text(kind, text), *self.flush()]

    def _change_call(
        self, update: Mapping[str, Any], now: float, *, adds: bool = False
    ) -> list[Block]:
        id = str(update.get("toolCallId"))
        known = self.calls.get(id)
        call = self.calls[id] = _changed(known, id, update, now, adds=adds)
        finished = self.flush() if known is None else []
        if call.ended is not None and (known is None or known.ended is None):
            finished.append(call)
        return finished

    def _change_plan(self, entries: Any) -> list[Block]:
        self.plan = tuple(
            ShownPlanEntry(str(each.get("content")), str(each.get("status")))
            for each in (entries if isinstance(entries, list) else ())
            if isinstance(each, Mapping)
        )
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


def _changed(
    known: ShownCall | None, id: str, update: Mapping[str, Any], now: float, *, adds: bool
) -> ShownCall:
    """The tool call after an update."""
    call = known or ShownCall(id, id, began=now)
    changes: dict[str, Any] = {
        name: str(update[name]) for name in ("title", "kind", "status") if update.get(name)
    }
    if changes.get("status") in FINISHED and call.ended is None:
        changes["ended"] = now
    if update.get("locations") is not None:
        changes["paths"] = paths_of(update)
    content = update.get("content")
    if isinstance(content, Sequence) and not isinstance(content, str):
        diffs, output = diffs_of(content), "\n".join(filter(None, map(_output, content)))
        changes["diffs"] = (*call.diffs, *diffs) if adds else diffs
        changes["output"] = call.output + output if adds else output
    return attrs.evolve(call, **changes)


def _output(item: Any) -> str:
    item = as_mapping(item)
    return content_text(item.get("content")) if item.get("type") == "content" else ""
