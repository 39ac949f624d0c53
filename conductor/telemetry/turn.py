"""The spans of a running prompt turn."""

from __future__ import annotations

from typing import Any

from opentelemetry.trace import Span, StatusCode, Tracer

from conductor.acp.sessions import FINISHED
from conductor.telemetry.attributes import (
    message_content,
    tool_attributes,
    tool_content,
    usage_attributes,
)
from conductor.telemetry.propagation import below
from conductor.tracing.records import NotificationRecord, RequestRecord

__all__ = ["Turn", "fail", "nanoseconds"]


class Turn:
    """A turn from its prompt on the first hop to its end."""

    def __init__(self, request: RequestRecord, root: Span, tracer: Tracer, captures: bool) -> None:
        self.request: RequestRecord = request
        self.root: Span = root
        self.inner: Span = root
        """The span of the prompt on its last hop so far: what the agent does is below it."""
        self._tracer, self._captures = tracer, captures
        self._tools: dict[str, Span] = {}
        """Running tool calls by id; `_ended` has the ids of the others."""
        self._ended: set[str] = set()
        self._updates = 0
        self._text: list[str] = []

    def tool_of(self, params: dict[str, Any]) -> Span | None:
        """The running tool call that a request of the agent names."""
        match params:
            case {"toolCall": {"toolCallId": str(id)}} | {
                "subject": {"toolCall": {"toolCallId": str(id)}} | {"toolCallId": str(id)}
            }:
                return self._tools.get(id)
        return None

    def update(self, record: NotificationRecord, update: dict[str, Any]) -> None:
        """A session update, on any hop: the first one of several hops counts."""
        kind = update.get("sessionUpdate")
        if record.hop == 0:
            self._updates += record.count
            match update.get("content"):
                case {"text": str(text)} if self._captures and kind == "agent_message_chunk":
                    self._text.append(text)
        if kind in ("tool_call", "tool_call_update"):
            self._tool(record, update)
        elif kind == "usage_update":
            self._note_usage(update)

    def end(self, time: float, result: dict[str, Any]) -> None:
        """End the spans of running tool calls; complete the root. `result`: see `stopReason`."""
        for span in self._tools.values():
            span.set_attribute("acp_conductor.tool.status", "unfinished")
            span.end(nanoseconds(time))
        root = self.root
        root.set_attribute("acp_conductor.turn.updates", self._updates)
        tool_calls = len(self._tools) + len(self._ended)
        root.set_attribute("acp_conductor.turn.tool_calls", tool_calls)
        reason = result.get("stopReason")
        if isinstance(reason, str):
            root.set_attribute("gen_ai.response.finish_reasons", [reason])
        root.set_attributes(usage_attributes(result.get("usage")))
        if self._captures:
            self._add_content(reason if isinstance(reason, str) else None)

    def _tool(self, record: NotificationRecord, update: dict[str, Any]) -> None:
        id = update.get("toolCallId")
        if not isinstance(id, str) or id in self._ended:
            return
        span = self._tools.get(id)
        if span is None:
            attributes = tool_attributes(update) | {"acp_conductor.record": record.n}
            if record.session is not None:
                attributes["gen_ai.conversation.id"] = record.session
            span = self._tools[id] = self._tracer.start_span(
                f"execute_tool {attributes['gen_ai.tool.name']}",
                below(self.inner.get_span_context()),
                attributes=attributes,
                start_time=nanoseconds(record.time),
            )
        if self._captures:
            span.set_attributes(tool_content(update))
        status = update.get("status")
        if status in FINISHED:
            span.set_attribute("acp_conductor.tool.status", str(status))
            if status == "failed":
                fail(span, "tool_failed")
            span.end(nanoseconds(record.time))
            del self._tools[id]
            self._ended.add(id)

    def _note_usage(self, update: dict[str, Any]) -> None:
        names = {"used": "acp_conductor.context.used", "size": "acp_conductor.context.size"}
        for key, name in names.items():
            if isinstance(count := update.get(key), int):
                self.root.set_attribute(name, count)
        match update.get("cost"):
            case {"amount": float() | int() as amount, "currency": str(currency)}:
                self.root.set_attribute("acp_conductor.session.cost", float(amount))
                self.root.set_attribute("acp_conductor.session.currency", currency)

    def _add_content(self, reason: str | None) -> None:
        params = self.request.params if isinstance(self.request.params, dict) else {}
        blocks = params.get("prompt")
        texts = [
            each["text"]
            for each in (blocks if isinstance(blocks, list) else [])
            if isinstance(each, dict) and isinstance(each.get("text"), str)
        ]
        self.root.set_attribute("gen_ai.input.messages", message_content("user", texts))
        output = message_content("assistant", self._text, reason)
        self.root.set_attribute("gen_ai.output.messages", output)


def fail(span: Span, type: str, description: str = "") -> None:
    """Mark as failed, with a type of few values (`error.type`)."""
    span.set_attribute("error.type", type)
    span.set_status(StatusCode.ERROR, description or type)


def nanoseconds(seconds: float) -> int:
    """A time of a record, which has microseconds, in nanoseconds."""
    return round(seconds * 1_000_000) * 1000
