"""What is counted of the entries of recorders."""

from __future__ import annotations

import pytest
from support.seen_port import traced_port

from conductor.jsonrpc.in_flight import InFlightRequest
from conductor.jsonrpc.notification_batch import NotificationBatch
from conductor.routing import trace
from conductor.routing.port import connect_ports
from conductor.server.metrics.counters import BUCKETS, OTHER, MetricCounters
from conductor.tracing.recorder import TraceRecorder


class Originator:
    """Takes any response."""

    def respond(self, call, result, error):
        pass


class Hop:
    """The ports of the hop between client and agent."""

    def __init__(self, counters):
        self.recorder = TraceRecorder("chain/1")
        counters.watch(self.recorder)
        self.recorder.attach([])
        self.to_agent = traced_port(self.recorder, "agent", "client")
        self.to_client = traced_port(self.recorder, "client", "agent")
        connect_ports(self.to_client, self.to_agent)

    def ask(self, method, result=b"{}", error=None, params=b"{}"):
        call = InFlightRequest(method, Originator())
        self.to_agent.request(call, method, params)
        self.to_client.respond(call, result, error)


@pytest.fixture
def counters():
    return MetricCounters()


@pytest.fixture
def hop(counters):
    return Hop(counters)


def test_messages_and_bytes_are_counted_by_receiver_direction_kind_and_method(counters, hop):
    hop.ask("session/prompt", b'{"stopReason":"end_turn"}', params=b'{"a":1}')
    hop.to_client.notify("session/update", None)
    long = b'{"x":"%b"}' % (b"x" * 5000)
    hop.to_client.notify("session/update", long)
    hop.to_client.notify_batch(NotificationBatch("session/update", [b"{}", b"{}"]))

    found = {key: (each.messages, each.bytes) for key, each in counters.traffic.items()}
    assert found == {
        ("agent", "agent", "request", "session/prompt"): (1, 7),
        ("client", "client", "response", "session/prompt"): (1, 25),
        ("client", "client", "notification", "session/update"): (4, len(long) + 4),
    }


def test_the_recorder_keeps_what_is_counted(hop):
    hop.ask("session/prompt")

    assert len(hop.recorder.flight) == 2


def test_a_response_is_timed_and_no_request_is_kept(counters, hop, monkeypatch):
    times = iter([1.0, 1.0625, 2.0, 4.0])
    monkeypatch.setattr(trace, "monotonic", lambda: next(times))
    hop.ask("session/new")
    hop.ask("session/new")

    durations = counters.durations["agent", "session/new"]
    assert durations.total == 2.0625
    assert [bound for bound, count in zip(BUCKETS, durations.counts, strict=False) if count] == [
        0.1,
        2.5,
    ]
    assert hop.recorder.add.__self__._open == {}


@pytest.mark.parametrize(
    ("result", "error", "outcome"),
    [
        (b'{"stopReason":"end_turn"}', None, "end_turn"),
        (b'{"stopReason":"cancelled"}', None, "cancelled"),
        (b'{"stopReason":"because I can"}', None, OTHER),
        (b"[]", None, OTHER),
        (b'{"stopReason":"end_turn","x":"%b"}' % (b"x" * 5000), None, OTHER),
        (None, b'{"code":-32603,"message":"x"}', "error"),
    ],
)
def test_a_prompt_has_the_outcome_that_its_answer_tells(counters, hop, result, error, outcome):
    hop.ask("session/prompt", result, error)

    assert counters.prompts == {outcome: 1}


def test_a_prompt_of_version_2_counts_when_its_turn_ends(counters, hop):
    hop.ask("session/prompt", b"{}")
    assert counters.prompts == {}

    for reason in ("cancelled", "because I can", None):
        counters.turn_ended(reason)
    assert counters.prompts == {"cancelled": 1, OTHER: 2}


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (b'{"code":-32603,"message":"x"}', "-32603"),
        (b'{"code":12345,"message":"x"}', OTHER),
        (b'{"code":"x"}', OTHER),
    ],
)
def test_errors_are_counted_by_component_method_and_known_code(counters, hop, error, code):
    hop.ask("session/load", None, error)

    assert counters.errors == {("agent", "session/load", code): 1}


def test_labels_have_few_values_whatever_a_client_sends(counters, hop):
    for number in range(2000):
        hop.ask(f"_tenant/{number}")
    for number in range(200):
        counters.component(f"component-{number}")

    assert {key[3] for key in counters.traffic} == {OTHER}
    assert {key[1] for key in counters.durations} == {OTHER}
    assert counters.component("one more") == OTHER
    assert counters.traffic["agent", "agent", "request", OTHER].messages == 2000


def test_failures_and_restarts_are_counted(counters, hop):
    hop.recorder.logged("error", "component failed", {"component": "notes", "error": "x"})
    hop.recorder.logged("warning", "component restarted", {"component": "notes"})
    hop.recorder.logged("info", "something else", {"component": "notes"})

    assert (counters.failures, counters.restarts) == ({"notes": 1}, {"notes": 1})
