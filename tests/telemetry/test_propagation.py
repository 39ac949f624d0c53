"""The trace context that components get."""

from __future__ import annotations

import json

import pytest
from support.raw_json import dumps
from support.seen_port import traced_port

from conductor.jsonrpc.in_flight import InFlightRequest
from conductor.jsonrpc.notification_batch import NotificationBatch
from conductor.telemetry.propagation import CHAIN_ENDED, PropagatingRecorder
from conductor.telemetry.trace_context import NO_PARENT, context_of
from conductor.tracing.recorder import LogEntry

TRACE, SPAN = "80e1afed08e019fc1110464cfa66635c", "7a085853722dc6d2"
CLIENT = {"traceparent": f"00-{TRACE}-{SPAN}-01", "tracestate": "other=1", "baggage": "k=v"}
PROMPT = {"sessionId": "s", "prompt": []}


class Chain:
    """The ports of `client → notes → agent` toward the agent, and back to the client."""

    def __init__(self, **options):
        self.entries = []
        self.recorder = PropagatingRecorder("demo", self.entries.append, **options)
        self.recorder.attach([])
        self.to_notes = traced_port(self.recorder, "notes", "client")
        self.to_agent = traced_port(self.recorder, "agent", "client")
        self.to_client = traced_port(self.recorder, "client", "agent")

    def meta(self, port, params, method="session/prompt", call=None):
        """The `_meta` with which a request leaves a port."""
        call = call or InFlightRequest(method, None)
        port.request(call, method, dumps(params))
        return json.loads(port.seen[-1]).get("_meta")


def test_the_trace_of_the_client_goes_on_with_a_span_for_each_hop():
    chain = Chain()

    first = chain.meta(chain.to_notes, PROMPT | {"_meta": CLIENT})
    second = chain.meta(chain.to_agent, PROMPT | {"_meta": first})

    contexts = context_of(first), context_of(second)
    assert [each.trace_id for each in contexts] == [TRACE, TRACE]
    assert [each.parent for each in contexts] == [SPAN, contexts[0].span_id]
    assert [each.tracestate for each in contexts] == ["other=1", "other=1"]
    assert [first["baggage"], second["baggage"]] == ["k=v", "k=v"]


def test_without_a_trace_of_the_client_one_begins():
    chain = Chain()

    one, other = (context_of(chain.meta(chain.to_notes, PROMPT)) for _ in range(2))

    assert one.parent == NO_PARENT
    assert one.sampled
    assert other.trace_id != TRACE


def test_where_a_proxy_drops_the_context_the_turn_has_it():
    chain = Chain()

    first = context_of(chain.meta(chain.to_notes, PROMPT))
    second = context_of(chain.meta(chain.to_agent, PROMPT))

    assert (second.trace_id, second.parent) == (first.trace_id, first.span_id)


def test_after_the_turn_its_trace_is_not_used_any_more():
    chain = Chain()
    call = InFlightRequest("session/prompt", None)
    first = context_of(chain.meta(chain.to_notes, PROMPT, call=call))
    chain.to_client.respond(call, b'{"stopReason":"end_turn"}', None)

    second = context_of(chain.meta(chain.to_agent, PROMPT))

    assert second.trace_id != first.trace_id


def test_a_proxy_with_spans_of_its_own_is_the_parent():
    chain = Chain()
    first = context_of(chain.meta(chain.to_notes, PROMPT))
    own = f"00-{first.trace_id}-{SPAN}-01"

    second = context_of(chain.meta(chain.to_agent, PROMPT | {"_meta": {"traceparent": own}}))

    assert (second.trace_id, second.parent) == (first.trace_id, SPAN)


@pytest.mark.parametrize("is_sampled", [True, False])
def test_the_decision_of_the_sampler_is_passed_on(is_sampled):
    chain = Chain(sampler=lambda parent, trace_id: is_sampled)

    assert context_of(chain.meta(chain.to_notes, PROMPT)).sampled is is_sampled


@pytest.mark.parametrize("method", ["initialize", "fs/read_text_file", "_vendor/x"])
def test_other_requests_keep_their_bytes(method):
    chain = Chain()

    assert chain.meta(chain.to_notes, {"a": 1}, method) is None


def test_requests_and_updates_toward_the_client_keep_their_bytes():
    chain = Chain()
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


def test_the_end_of_the_chain_is_recorded():
    chain = Chain()
    chain.recorder.end()

    (last,) = (each for each in chain.entries if isinstance(each, LogEntry))
    assert last.event == CHAIN_ENDED
