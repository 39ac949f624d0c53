"""`traceparent` and `tracestate` in `_meta`."""

from __future__ import annotations

import json

import pytest
from support.raw_json import dumps

from conductor.telemetry.trace_context import NO_PARENT, TraceContext, context_of, with_context

TRACE, SPAN = "80e1afed08e019fc1110464cfa66635c", "7a085853722dc6d2"
TRACEPARENT = f"00-{TRACE}-{SPAN}-01"
NEW = TraceContext(TRACE, "00f067aa0ba902b7", tracestate="other=1", parent=SPAN)


def test_the_context_of_the_specification_is_read():
    assert context_of({"traceparent": TRACEPARENT}) == TraceContext(TRACE, SPAN)


@pytest.mark.parametrize(
    "traceparent",
    [
        None,
        17,
        "",
        f"00-{TRACE}-{SPAN}",
        f"00-{'0' * 32}-{SPAN}-01",
        f"00-{TRACE}-{'0' * 16}-01",
        f"ff-{TRACE}-{SPAN}-01",
        f"00-{TRACE.upper()}-{SPAN}-01",
        f"00-{TRACE}-{SPAN}-01-more",
    ],
)
def test_an_invalid_traceparent_is_no_context(traceparent):
    assert context_of({"traceparent": traceparent, "tracestate": "a=1"}) is None


def test_a_later_version_may_have_more_fields():
    assert context_of({"traceparent": f"cc-{TRACE}-{SPAN}-00-more"}) == TraceContext(
        TRACE, SPAN, sampled=False
    )


def test_the_own_member_of_tracestate_tells_the_parent():
    meta = {"traceparent": TRACEPARENT, "tracestate": f"a=1, acp-conductor={NO_PARENT},b=2"}

    context = context_of(meta)

    assert context == TraceContext(TRACE, SPAN, tracestate="a=1,b=2", parent=NO_PARENT)
    assert context is not None
    assert context.is_own


def test_the_context_is_written_and_nothing_else_is_changed():
    params = b'{"sessionId" : "s1","n":1e400,"_meta":{"x": 0.10,"baggage":"k=v"},"prompt":[]}'

    changed = with_context(params, lambda before: NEW)

    assert json.loads(changed)["_meta"] == {
        "x": 0.1,
        "baggage": "k=v",
        "traceparent": f"00-{TRACE}-00f067aa0ba902b7-01",
        "tracestate": f"acp-conductor={SPAN},other=1",
    }
    assert b'"n":1e400' in changed
    assert b'"x": 0.10' in changed


@pytest.mark.parametrize("meta", [b"", b',"_meta":null', b',"_meta":{}'])
def test_params_without_meta_get_one(meta):
    seen = []

    changed = with_context(b'{"a":1%b}' % meta, lambda before: seen.append(before) or NEW)

    assert seen == [None]
    assert context_of(json.loads(changed)["_meta"]) == NEW


@pytest.mark.parametrize("params", [b"[1]", b'"text"', b'{"_meta":[1]}', b'{"_meta":7}', b"{"])
def test_other_params_are_unchanged(params):
    assert with_context(params, lambda before: NEW) == params


def test_the_oldest_members_of_a_long_tracestate_are_dropped():
    state = ",".join(f"v{n}=x" for n in range(32))
    params = dumps({"_meta": {"traceparent": TRACEPARENT, "tracestate": state}})

    def make(before):
        return before.child(sampled=True)

    members = json.loads(with_context(params, make))["_meta"]["tracestate"].split(",")
    assert members == [f"acp-conductor={SPAN}", *(f"v{n}=x" for n in range(31))]
