"""A span, before the OpenTelemetry SDK or a file gets it. Pure."""

from __future__ import annotations

from typing import Final, Literal, TypeAlias

import attrs

__all__ = ["Attributes", "Span", "SpanEvent", "encodable", "nanoseconds"]

Attributes: TypeAlias = dict[str, str | int | float | bool | list[str]]
_LATEST: Final = 9.2e9
"""Seconds since 1970 of the latest time: its nanoseconds are a signed integer of 64 bits."""


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


def encodable(span: Span) -> Span:
    """The span with `?` for each half of a surrogate pair, which UTF-8 cannot encode: agents cut
    texts in the middle of an emoji."""
    error = None if span.error is None else _text(span.error)
    events = [
        SpanEvent(each.time, _text(each.name), _attributes(each.attributes)) for each in span.events
    ]
    attributes = _attributes(span.attributes)
    return attrs.evolve(
        span, name=_text(span.name), attributes=attributes, events=events, error=error
    )


def nanoseconds(seconds: float) -> int:
    """A time in nanoseconds, in the range of OpenTelemetry: a trace file may have any number."""
    return round(min(max(0.0, seconds), _LATEST) * 1_000_000) * 1000


def _attributes(attributes: Attributes) -> Attributes:
    return {_text(name): _value(value) for name, value in attributes.items()}


def _value(value: str | int | float | bool | list[str]) -> str | int | float | bool | list[str]:
    if isinstance(value, str):
        return _text(value)
    return list(map(_text, value)) if isinstance(value, list) else value


def _text(text: str) -> str:
    return text if text.isascii() else text.encode(errors="replace").decode()
