"""A link: ports, envelope, refused messages."""

from __future__ import annotations

import json

import pytest
from support.peers.port import Flusher, ListTransport, Neighbour, cancel
from support.raw_json import compact

from conductor.jsonrpc.connection import Connection
from conductor.jsonrpc.in_flight import InFlightRequest
from conductor.jsonrpc.notification_batch import NotificationBatch
from conductor.routing.failure_errors import FailureErrors
from conductor.routing.link import Link
from conductor.routing.port import connect_ports


class Bench:
    """A link between two neighbours, with a peer played by the test."""

    def __init__(self, role, *, dialect="proxy", write=compact, **options):
        self.reports = []
        self.write = write
        self.link = Link("notes", role, lambda *report: self.reports.append(report))
        self.link.dialect = dialect
        self.transport, self.flusher = ListTransport(), Flusher()
        self.link.connect(Connection(self.transport, self.link, self.flusher, **options))
        self.before, self.behind = Neighbour(), Neighbour()
        connect_ports(self.before, self.link.plain)
        if self.link.enveloped is not None:
            connect_ports(self.link.enveloped, self.behind)

    def feed(self, *messages):
        lines = [self.write({"jsonrpc": "2.0", **message}) + "\n" for message in messages]
        self.link.connection.feed("".join(lines).encode())

    def written(self):
        self.flusher.flush()
        found = self.transport.messages()
        assert all(message.pop("jsonrpc") == "2.0" for message in found)
        return found


in_either_notation = pytest.mark.parametrize("write", [compact, json.dumps])
"""As real SDKs write JSON, and with spaces, which leaves the path of blocks."""


def envelope(dialect, method, params=None, **outer):
    return {
        **outer,
        "method": f"{dialect}/successor",
        "params": {"method": method, "params": params},
    }


@pytest.mark.parametrize("params", [None, {}, {"method": 1}, {"method": "m", "params": 7}])
def test_a_malformed_envelope_is_refused(params):
    bench = Bench("proxy")

    bench.feed({"id": 1, "method": "proxy/successor", "params": params})
    bench.feed({"method": "proxy/successor", "params": params})

    (reply,) = bench.written()
    assert (reply["id"], reply["error"]["code"]) == (1, -32602)
    assert reply["error"]["message"] == "Invalid params"
    assert bench.behind.heard == []
    assert len(bench.reports) == 2


# -- cancellation ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("role", "side", "form"),
    [
        ("proxy", "plain", "plain"),
        ("proxy", "enveloped", "plain"),
        ("agent", "plain", "plain"),
        ("client", "plain", "plain"),
        ("parent", "plain", "plain"),
        ("parent", "enveloped", "enveloped"),
    ],
)
@pytest.mark.parametrize("dialect", ["proxy", "_proxy"])
def test_a_cancellation_is_reissued_once_with_the_id_of_this_hop(role, side, form, dialect):
    bench = Bench(role, dialect=dialect)
    call = InFlightRequest("m", bench.before, source_id="theirs")
    getattr(bench.link, side).request(call, "m", None)
    bench.written()

    call.cancel()
    call.cancel()

    expected = cancel(1) if form == "plain" else envelope(dialect, **cancel(1))
    assert bench.written() == [expected]


@in_either_notation
@pytest.mark.parametrize("enveloped", [None, "proxy", "_proxy"])
@pytest.mark.parametrize("side", ["before", "behind"])
def test_a_cancellation_is_understood_plain_and_wrapped(enveloped, side, write):
    bench = Bench("proxy", write=write)
    request = {"id": "p1", "method": "m"}
    bench.feed(request if side == "before" else envelope("_proxy", "m", id="p1"))

    wish = cancel("p1") if enveloped is None else envelope(enveloped, **cancel("p1"))
    bench.feed(wish, wish)

    neighbour = getattr(bench, side)
    assert neighbour.heard == [("request", "m", None), ("cancel", "m")]
    assert bench.written() == []


@pytest.mark.parametrize(
    "params", [None, {}, {"requestId": "unknown"}, {"requestId": 1.5}, {"requestId": [1]}, [1]]
)
def test_a_cancellation_of_nothing_is_ignored(params):
    bench = Bench("client", answers_malformed=True)
    bench.feed({"id": 1, "method": "m"})

    bench.feed({"method": "$/cancel_request", "params": params})

    assert bench.before.heard == [("request", "m", None)]
    assert bench.written() == []


def test_the_newest_of_equal_ids_is_cancelled():
    bench = Bench("client")
    bench.feed({"id": 1, "method": "old"}, {"id": 1, "method": "new"}, cancel(1))

    assert bench.before.heard[-1] == ("cancel", "new")
    assert [call.cancelled for call in bench.before.asked] == [False, True]


def test_a_request_that_is_answered_is_not_cancelled_any_more():
    bench = Bench("agent")
    call = InFlightRequest("m", bench.before)
    bench.link.plain.request(call, "m", None)
    bench.feed({"id": 1, "result": {}})
    bench.written()

    call.cancel()

    assert bench.written() == []


def test_a_request_that_was_cancelled_on_its_way_is_sent_with_its_cancellation():
    bench = Bench("agent")

    bench.link.plain.request(InFlightRequest("m", bench.before, cancelled=True), "m", None)

    assert bench.written() == [{"id": 1, "method": "m"}, cancel(1)]


# -- the end -----------------------------------------------------------------------------------


def test_a_disconnect_cancels_requests_with_equal_ids():
    bench = Bench("proxy")
    bench.feed({"id": 1, "method": "old"}, {"id": 1, "method": "new"})

    bench.link.disconnect(FailureErrors.plain(b"{}"))

    assert sorted(bench.before.heard[2:]) == [("cancel", "new"), ("cancel", "old")]


def test_a_request_to_a_disconnected_peer_is_answered_at_once():
    bench = Bench("agent")
    bench.link.disconnect(FailureErrors.plain(b'{"code":-1,"message":"gone"}'))

    bench.link.plain.request(InFlightRequest("m", bench.before), "m", None)
    bench.link.plain.notify("n", None)
    bench.link.plain.notify_batch(NotificationBatch("n", [b"{}", b"{}"]))

    assert bench.before.heard == [("answer", "m", None, b'{"code":-1,"message":"gone"}')]


@pytest.mark.parametrize("end", ["disconnect", "on_eof"])
def test_the_mcp_connections_of_a_peer_that_is_gone_are_disconnected(end):
    bench = Bench("proxy")
    error = b'{"code":-1,"message":"gone"}'
    for method in ("mcp/disconnect", "mcp/message"):
        bench.link.enveloped.request(InFlightRequest(method, bench.behind), method, None)

    getattr(bench.link, end)(FailureErrors.plain(error) if end == "disconnect" else error)
    late = InFlightRequest("mcp/disconnect", bench.behind)
    bench.link.enveloped.request(late, "mcp/disconnect", None)

    assert bench.behind.heard == [
        ("answer", "mcp/disconnect", b"{}", None),
        ("answer", "mcp/message", None, error),
        ("answer", "mcp/disconnect", b"{}", None),
    ]


def test_a_malformed_answer_is_an_error_that_names_the_component():
    bench = Bench("agent")
    bench.link.plain.request(InFlightRequest("m", bench.before), "m", None)

    bench.feed({"id": 1, "result": 1, "error": 2})

    ((kind, method, result, error),) = bench.before.heard
    assert (kind, method, result) == ("answer", "m", None)
    assert json.loads(error) == {
        "code": -32603,
        "message": "notes sent a malformed response to this request",
        "data": {"component": "notes", "reason": "a response has either a result or an error"},
    }
    assert len(bench.reports) == 1


def test_a_late_response_is_dropped_and_reported_as_what_it_is():
    bench = Bench("agent")
    call = InFlightRequest("session/load", bench.before)
    bench.link.plain.request(call, "session/load", None)
    bench.link.fail_request(call, "too late")

    bench.feed({"id": 1, "result": {}}, {"id": 1, "result": {}})

    late, second = bench.reports
    assert (late[0], late[2]) == ("late answer dropped", {"method": "session/load"})
    assert late[1].startswith("the request was answered in its place 0.")
    assert second == ("malformed message", "an answer to no request (id 1)", {})
    assert len(bench.before.heard) == 1


def test_the_next_process_of_a_component_has_no_late_responses():
    bench = Bench("agent")
    call = InFlightRequest("session/load", bench.before)
    bench.link.plain.request(call, "session/load", None)
    bench.link.answer_in_place(call, b"{}", None)
    bench.link.disconnect(FailureErrors.plain(b"{}"))
    bench.link.connect(Connection(bench.transport, bench.link, bench.flusher))

    bench.feed({"id": 1, "result": {}})

    assert bench.reports == [("malformed message", "an answer to no request (id 1)", {})]
