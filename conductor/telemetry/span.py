"""A span, before the OpenTelemetry SDK or a file gets it. Pure."""

from __future__ import annotations

from typing import Literal, TypeAlias

import attrs

__all__ = ["Attributes", "Span", "SpanEvent"]

Attributes: TypeAlias = dict[str, str | int | float | bool | list[str]]


@attrs.frozen
class SpanEvent:
    """Something that happened during a span; `time` in seconds since 1970."""

    time: float
    name: str
    attributes: Attributes = attrs.field(factory=dict)


@attrs.define(eq=False)
class Span:
    """One operation. Times are in seconds since 1970; `error` is the description of a failure."""

    name: str
    trace_id: str
    span_id: str
    parent_id: str | None
    start: float
    kind: Literal["server", "client", "internal"] = "internal"
    end: float = 0.0
    attributes: Attributes = attrs.field(factory=dict)
    events: list[SpanEvent] = attrs.field(factory=list)
    error: str | None = None
    sampled: bool = True
    has_remote_parent: bool = False
    """Whether another program has made the parent."""

    def fail(self, type: str, description: str = "") -> None:
        """Mark as failed, with a type of few values (`error.type`)."""
        self.attributes["error.type"] = type
        self.error = description or type
