"""The trace context that components get."""

from __future__ import annotations

import json

import pytest
from opentelemetry.sdk.trace import TracerProvider
from support.raw_json import dumps
from support.seen_port import traced_port

from conductor.jsonrpc.in_flight import InFlightRequest
from conductor.jsonrpc.notification_batch import NotificationBatch
from conductor.telemetry.propagation import PropagatingRecorder

TRACE, SPAN = "80e1afed08e019fc1110464cfa66635c", "7a085853722dc6d2"
TRACEPARENT = f"00-{TRACE}-{SPAN}-01"
CLIENT = {"traceparent": TRACEPARENT, "tracestate": "other=1", "baggage": "k=v"}
PROMPT = {"sessionId": "s", "prompt": []}
NO_PARENT = "0" * 16


def ids(meta):
    """Trace and span of a `_meta`."""
    _, trace, span, _ = meta["traceparent"].split("-")
    return trace, span


def is_sampled(meta):
    return int(meta["traceparent"][-2:], 16) & 1 == 1


class Chain:
    """The ports of `client → notes → agent` toward the agent, and back to the client."""

    def __init__(self):
        self.entries = []
        tracer = TracerProvider(shutdown_on_exit=False).get_tracer("test")
        self.recorder = PropagatingRecorder("demo", self.entries.append, tracer=tracer)
        self.recorder.attach([])
        self.to_notes = traced_port(self.recorder, "notes", "client")
        self.to_agent = traced_port(self.recorder, "agent", "client")
        self.to_client = traced_port(self.recorder, "client", "agent")

    def meta(self, port, params, method="session/prompt", call=None):
        """The `_meta` with which a request leaves a port."""
        return json.loads(self.sent(port, dumps(params), method, call)).get("_meta")

    def sent(self, port, params, method="session/prompt", call=None):
        """The params with which a request leaves a port."""
        port.request(call or InFlightRequest(method, None), method, params)
        return port.seen[-1]


def test_the_trace_of_the_client_goes_on_with_a_span_for_each_hop():
    chain = Chain()

    first = chain.meta(chain.to_notes, PROMPT | {"_meta": CLIENT})
    second = chain.meta(chain.to_agent, PROMPT | {"_meta": first})

    traces, spans = zip(ids(first), ids(second), strict=True)
    assert traces == (TRACE, TRACE)
    assert [each["tracestate"] for each in (first, second)] == [
        f"acp-conductor={SPAN},other=1",
        f"acp-conductor={spans[0]},other=1",
    ]
    assert [first["baggage"], second["baggage"]] == ["k=v", "k=v"]


@pytest.mark.parametrize(
    "traceparent", [None, 17, "", f"00-{'0' * 32}-{SPAN}-01", f"{TRACEPARENT}-more"]
)
def test_without_a_valid_trace_of_the_client_one_begins(traceparent):
    chain = Chain()
    meta = {"traceparent": traceparent, "tracestate": "other=1"}

    one, other = (chain.meta(chain.to_notes, PROMPT | {"_meta": meta}, "session/x") for _ in "ab")

    assert one["tracestate"] == f"acp-conductor={NO_PARENT}"
    assert is_sampled(one)
    assert len({TRACE, ids(one)[0], ids(other)[0]}) == 3


def test_where_a_proxy_drops_the_context_the_turn_has_it():
    chain = Chain()

    first = chain.meta(chain.to_notes, PROMPT)
    second = chain.meta(chain.to_agent, PROMPT)

    assert ids(second)[0] == ids(first)[0]
    assert second["tracestate"] == f"acp-conductor={ids(first)[1]}"


def test_after_the_turn_its_trace_is_not_used_any_more():
    chain = Chain()
    call = InFlightRequest("session/prompt", None)
    first = chain.meta(chain.to_notes, PROMPT, call=call)
    chain.to_client.respond(call, b'{"stopReason":"end_turn"}', None)

    second = chain.meta(chain.to_agent, PROMPT)

    assert ids(second)[0] != ids(first)[0]


def test_a_proxy_with_spans_of_its_own_is_the_parent():
    chain = Chain()
    first = chain.meta(chain.to_notes, PROMPT)
    own = {"traceparent": f"00-{ids(first)[0]}-{SPAN}-01"}

    second = chain.meta(chain.to_agent, PROMPT | {"_meta": own})

    assert (ids(second)[0], second["tracestate"]) == (ids(first)[0], f"acp-conductor={SPAN}")


@pytest.mark.parametrize(
    ("sampler", "ratio", "expected"),
    [
        ("parentbased_always_on", "", (True, False)),
        ("traceidratio", "0", (False, False)),
    ],
)
def test_the_sampler_of_the_environment_decides(monkeypatch, sampler, ratio, expected):
    monkeypatch.setenv("OTEL_TRACES_SAMPLER", sampler)
    monkeypatch.setenv("OTEL_TRACES_SAMPLER_ARG", ratio)
    chain = Chain()
    unsampled = {"traceparent": f"00-{TRACE}-{SPAN}-00"}

    at_root = chain.meta(chain.to_notes, PROMPT, "session/x")
    below = chain.meta(chain.to_notes, PROMPT | {"_meta": unsampled}, "session/x")

    assert (is_sampled(at_root), is_sampled(below)) == expected


def test_nothing_but_the_context_is_changed():
    chain = Chain()
    params = b'{"sessionId" : "s1","n":1e400,"_meta":{"x": 0.10,"baggage":"k=v"},"prompt":[]}'

    sent = chain.sent(chain.to_notes, params)

    assert json.loads(sent)["_meta"].keys() == {"x", "baggage", "traceparent", "tracestate"}
    assert b'"n":1e400' in sent
    assert b'"x": 0.10' in sent


@pytest.mark.parametrize("meta", [b"", b',"_meta":null', b',"_meta":{}'])
def test_params_without_meta_get_one(meta):
    chain = Chain()

    sent = chain.sent(chain.to_notes, b'{"a":1%b}' % meta)

    assert json.loads(sent)["_meta"].keys() == {"traceparent", "tracestate"}


@pytest.mark.parametrize("params", [b"[1]", b'{"_meta":[1]}'])
def test_params_that_cannot_have_a_context_are_unchanged(params):
    chain = Chain()

    assert chain.sent(chain.to_notes, params) == params


@pytest.mark.parametrize(("value", "kept"), [("x", 31), ("x" * 30, 14)])
def test_the_oldest_members_of_a_long_tracestate_are_dropped(value, kept):
    chain = Chain()
    others = [f"v{n}={value}" for n in range(32)]
    meta = {"traceparent": TRACEPARENT, "tracestate": ",".join(others[: kept + 1])}

    members = chain.meta(chain.to_notes, PROMPT | {"_meta": meta})["tracestate"].split(",")

    assert members == [f"acp-conductor={SPAN}", *others[:kept]]


def test_other_requests_and_messages_toward_the_client_keep_their_bytes():
    chain = Chain()
    assert chain.meta(chain.to_notes, {"a": 1}, "initialize") is None
    params = b'{ "sessionId":"s" }'
    chain.to_client.request(InFlightRequest("session/x", None), "session/x", params)
    chain.to_client.notify("session/update", params)
    batch = NotificationBatch("session/update", [params, params])
    chain.to_client.notify_batch(batch)

    assert chain.to_client.seen == [params, params, batch]


def test_the_recorded_message_has_the_context_that_was_passed_on():
    chain = Chain()

    meta = chain.meta(chain.to_notes, PROMPT)

    (recorded,) = (each for each in chain.entries if isinstance(each, tuple))
    assert json.loads(recorded[4])["_meta"] == meta
