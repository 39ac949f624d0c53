"""OTLP/JSON, read with the official protocol definitions."""

from __future__ import annotations

import base64
import json

import pytest
from google.protobuf.json_format import ParseDict
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from conductor.telemetry.otlp_json import otlp_json
from conductor.telemetry.span import Span, SpanEvent

TRACE, ROOT, CHILD = "80e1afed08e019fc1110464cfa66635c", "7a085853722dc6d2", "00f067aa0ba902b7"


def parsed(line):
    """The request; in protobuf's own JSON, ids are in base 64."""
    request = json.loads(line)
    for span in request["resourceSpans"][0]["scopeSpans"][0]["spans"]:
        for name in {"traceId", "spanId", "parentSpanId"} & span.keys():
            span[name] = base64.b64encode(bytes.fromhex(span[name])).decode()
    return ParseDict(request, ExportTraceServiceRequest())


def test_a_file_is_one_request_of_the_protocol():
    root = Span("root", TRACE, ROOT, None, 1_800_000_000.25, "server", 1_800_000_001.5)
    root.attributes = {"s": "x", "i": 1 << 60, "f": 0.5, "b": True, "l": ["a", "b"]}
    root.events.append(SpanEvent(1_800_000_000.5, "permission decided", {"rule": "no"}))
    child = Span("child", TRACE, CHILD, ROOT, 1_800_000_000.5, end=1_800_000_001.0)
    child.fail("-32603", "it failed")

    line = otlp_json([root, child])
    (of_resource,) = parsed(line).resource_spans
    first, second = of_resource.scope_spans[0].spans

    assert line.count(b"\n") == 1
    assert of_resource.resource.attributes[0].value.string_value == "acp-conductor"
    assert (first.trace_id.hex(), first.span_id.hex(), first.parent_span_id) == (TRACE, ROOT, b"")
    assert (first.kind, first.start_time_unix_nano) == (2, 1_800_000_000_250_000_000)
    values = {each.key: each.value for each in first.attributes}
    assert values["i"].int_value == 1 << 60
    assert values["b"].bool_value is True
    assert [each.string_value for each in values["l"].array_value.values] == ["a", "b"]
    assert [each.name for each in first.events] == ["permission decided"]
    assert second.parent_span_id.hex() == ROOT
    assert (second.status.code, second.status.message) == (2, "it failed")


def test_spans_that_are_not_sampled_are_left_out():
    span = Span("x", TRACE, ROOT, None, 1.0, sampled=False)

    assert not parsed(otlp_json([span])).resource_spans[0].scope_spans[0].spans


def test_half_a_surrogate_pair_becomes_a_question_mark():
    span = Span(
        "half \ud83d", TRACE, ROOT, None, 1.0, end=2.0, error="\udfff", has_remote_parent=True
    )
    span.attributes = {"gen_ai.tool.name": "\ud83d", "é\ud83d": ["\ud83d", "😀"], "n": 1}
    span.events.append(SpanEvent(1.5, "\ud83d", {"x": "\udfff"}))

    (of_resource,) = parsed(otlp_json([span])).resource_spans
    (made,) = of_resource.scope_spans[0].spans

    assert (made.name, made.status.message, made.events[0].name) == ("half ?", "?", "?")
    values = {each.key: each.value for each in made.attributes}
    assert values["gen_ai.tool.name"].string_value == "?"
    assert [each.string_value for each in values["é?"].array_value.values] == ["?", "😀"]
    assert values["n"].int_value == 1


@pytest.mark.parametrize("time", [1e308, -1e308, float("inf"), float("nan"), 1e10])
def test_no_time_in_a_trace_file_is_beyond_the_protocol(time):
    span = Span("root", TRACE, ROOT, None, time, end=time)
    span.events.append(SpanEvent(time, "event"))
    ((found,),) = [scope.spans for scope in parsed(otlp_json([span])).resource_spans[0].scope_spans]

    assert found.start_time_unix_nano == found.end_time_unix_nano < 2**63
