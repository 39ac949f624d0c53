"""Spans as OTLP/JSON: the request of an OTLP exporter as one line, for the file receiver of a
collector, for `curl`, and for viewers. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

import msgspec

from conductor import __version__
from conductor.telemetry.span import Attributes, Span, encodable, nanoseconds

__all__ = ["otlp_json"]

_KINDS: Final = {"internal": 1, "server": 2, "client": 3}
_ERROR: Final = 2
_SAMPLED, _HAS_REMOTE, _IS_REMOTE = 1, 0x100, 0x200


def otlp_json(spans: Iterable[Span], service: str = "acp-conductor") -> bytes:
    """One line. Ids are hexadecimal and integers of 64 bits are strings, as OTLP/JSON has them."""
    resource = {"service.name": service, "service.version": __version__}
    scope = {"name": "acp-conductor", "version": __version__}
    sampled = [_span(encodable(each)) for each in spans if each.sampled]
    of_scope = {"scope": scope, "spans": sampled}
    of_resource = {"resource": {"attributes": _attributes(resource)}, "scopeSpans": [of_scope]}
    return msgspec.json.encode({"resourceSpans": [of_resource]}) + b"\n"


def _span(span: Span) -> dict[str, Any]:
    flags = _SAMPLED | _HAS_REMOTE | (_IS_REMOTE if span.has_remote_parent else 0)
    found: dict[str, Any] = {
        "traceId": span.trace_id,
        "spanId": span.span_id,
        "flags": flags,
        "name": span.name,
        "kind": _KINDS[span.kind],
        "startTimeUnixNano": str(nanoseconds(span.start)),
        "endTimeUnixNano": str(nanoseconds(span.end)),
        "attributes": _attributes(span.attributes),
    }
    if span.parent_id is not None:
        found["parentSpanId"] = span.parent_id
    if span.events:
        found["events"] = [
            {
                "timeUnixNano": str(nanoseconds(each.time)),
                "name": each.name,
                "attributes": _attributes(each.attributes),
            }
            for each in span.events
        ]
    if span.error is not None:
        found["status"] = {"code": _ERROR, "message": span.error}
    return found


def _attributes(attributes: Attributes | dict[str, str]) -> list[dict[str, Any]]:
    return [{"key": name, "value": _value(value)} for name, value in attributes.items()]


def _value(value: str | int | float | bool | list[str]) -> dict[str, Any]:
    match value:
        case bool():
            return {"boolValue": value}
        case int():
            return {"intValue": str(value)}
        case float():
            return {"doubleValue": value}
        case str():
            return {"stringValue": value}
    return {"arrayValue": {"values": [{"stringValue": each} for each in value]}}
