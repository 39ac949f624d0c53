"""The spans of a running prompt turn. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import attrs

from conductor.acp.sessions import FINISHED
from conductor.telemetry.attributes import (
    message_content,
    tool_attributes,
    tool_content,
    usage_attributes,
)
from conductor.telemetry.span import Span
from conductor.telemetry.trace_context import derived_id
from conductor.tracing.records import NotificationRecord, RequestRecord

__all__ = ["Turn"]

_MAX_TOOLS: Final = 1000
"""Tool calls of one turn that get spans."""
_MAX_TEXT: Final = 64 * 1024


@attrs.define(eq=False, init=False)
class Turn:
    """A turn from its prompt on the first hop to its end."""

    request: RequestRecord
    root: Span
    inner: Span
    """The span of the prompt on its last hop so far: what the agent does is below it."""
    _captures: bool
    _tools: dict[str, Span]
    """Running tool calls by id; `_ended` has the ids of the others."""
    _ended: set[str]
    _updates: int
    _text: list[str]
    _length: int

    def __init__(self, request: RequestRecord, root: Span, captures: bool) -> None:
        self.request, self.root, self.inner = request, root, root
        self._captures = captures
        self._tools, self._ended = {}, set()
        self._updates, self._text, self._length = 0, [], 0

    def tool_of(self, params: dict[str, Any]) -> Span | None:
        """The running tool call that a request of the agent names."""
        match params:
            case {"toolCall": {"toolCallId": str(id)}} | {
                "subject": {"toolCall": {"toolCallId": str(id)}} | {"toolCallId": str(id)}
            }:
                return self._tools.get(id)
        return None

    def update(self, record: NotificationRecord, update: dict[str, Any]) -> Iterator[Span]:
        """A session update, on any hop: the first one of several hops counts."""
        kind = update.get("sessionUpdate")
        if record.hop == 0:
            self._updates += record.count
            if self._captures and kind == "agent_message_chunk":
                self._note_text(update)
        if kind in ("tool_call", "tool_call_update"):
            yield from self._tool(record, update)
        elif kind == "usage_update":
            self._note_usage(update)

    def end(self, time: float, result: dict[str, Any] | None) -> Iterator[Span]:
        """The spans of running tool calls, and then the root. `result`: see `stopReason`."""
        for span in self._tools.values():
            span.end = time
            span.attributes["acp_conductor.tool.status"] = "unfinished"
            yield span
        root = self.root
        root.end = time
        root.attributes["acp_conductor.turn.updates"] = self._updates
        root.attributes["acp_conductor.turn.tool_calls"] = len(self._tools) + len(self._ended)
        if result is None:
            root.fail("unanswered", "the turn had not ended when the chain ended")
        else:
            reason = result.get("stopReason")
            if isinstance(reason, str):
                root.attributes["gen_ai.response.finish_reasons"] = [reason]
            root.attributes |= usage_attributes(result.get("usage"))
            if self._captures:
                self._add_content(reason if isinstance(reason, str) else None)
        yield root

    def _tool(self, record: NotificationRecord, update: dict[str, Any]) -> Iterator[Span]:
        id = update.get("toolCallId")
        if not isinstance(id, str) or id in self._ended:
            return
        span = self._tools.get(id)
        if span is None:
            if len(self._tools) + len(self._ended) >= _MAX_TOOLS:
                return
            attributes = tool_attributes(update)
            name = f"execute_tool {attributes['gen_ai.tool.name']}"
            parent = self.inner
            span_id = derived_id(8, parent.trace_id, parent.span_id, record.n)
            span = Span(name, parent.trace_id, span_id, parent.span_id, record.time)
            span.sampled, span.attributes = parent.sampled, attributes
            span.attributes["acp_conductor.record"] = record.n
            if record.session is not None:
                span.attributes["gen_ai.conversation.id"] = record.session
            self._tools[id] = span
        if self._captures:
            span.attributes |= tool_content(update)
        status = update.get("status")
        if status in FINISHED:
            span.end = record.time
            span.attributes["acp_conductor.tool.status"] = str(status)
            if status == "failed":
                span.fail("tool_failed")
            del self._tools[id]
            self._ended.add(id)
            yield span

    def _note_usage(self, update: dict[str, Any]) -> None:
        names = {"used": "acp_conductor.context.used", "size": "acp_conductor.context.size"}
        for key, name in names.items():
            if isinstance(count := update.get(key), int):
                self.root.attributes[name] = count
        match update.get("cost"):
            case {"amount": float() | int() as amount, "currency": str(currency)}:
                self.root.attributes["acp_conductor.session.cost"] = float(amount)
                self.root.attributes["acp_conductor.session.currency"] = currency

    def _note_text(self, update: dict[str, Any]) -> None:
        match update.get("content"):
            case {"type": "text", "text": str(text)} if self._length < _MAX_TEXT:
                self._text.append(text)
                self._length += len(text)

    def _add_content(self, reason: str | None) -> None:
        params = self.request.params if isinstance(self.request.params, dict) else {}
        blocks = params.get("prompt")
        texts = [
            each["text"]
            for each in (blocks if isinstance(blocks, list) else [])
            if isinstance(each, dict) and isinstance(each.get("text"), str)
        ]
        self.root.attributes["gen_ai.input.messages"] = message_content("user", texts)
        output = message_content("assistant", self._text, reason)
        self.root.attributes["gen_ai.output.messages"] = output
