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


@pytest.mark.parametrize("dialect", ["proxy", "_proxy"])
def test_messages_to_a_proxy_are_in_its_dialect(dialect):
    bench = Bench("proxy", dialect=dialect)

    bench.link.plain.request(InFlightRequest("a", bench.before), "a", b'{"x":1}')
    bench.link.plain.notify("b", None)
    bench.link.enveloped.request(InFlightRequest("c", bench.behind), "c", b"[1]")
    bench.link.enveloped.notify("d", None)

    assert bench.written() == [
        {"id": 1, "method": "a", "params": {"x": 1}},
        {"method": "b"},
        envelope(dialect, "c", [1], id=2),
        envelope(dialect, "d"),
    ]


@in_either_notation
@pytest.mark.parametrize("dialect", ["proxy", "_proxy"])
def test_messages_from_a_proxy_are_accepted_in_either_dialect(dialect, write):
    bench = Bench("proxy", dialect="proxy", write=write)

    bench.feed(
        {"id": 1, "method": "a", "params": {"x": 1}},
        {"method": "b"},
        envelope(dialect, "c", [1], id="p1"),
        envelope(dialect, "d"),
    )

    params = write({"x": 1}).encode()
    assert bench.before.heard == [("request", "a", params), ("notification", "b", None)]
    assert bench.behind.heard == [("request", "c", b"[1]"), ("notification", "d", None)]
    assert bench.behind.asked[0].method == "c"


def test_answers_are_never_enveloped():
    bench = Bench("proxy")
    bench.link.enveloped.request(InFlightRequest("c", bench.behind), "c", None)
    bench.feed(envelope("proxy", "x", id="p1"), {"id": 1, "result": {"r": 1}})

    bench.link.enveloped.respond(bench.behind.asked[0], b"2", None)

    assert bench.written()[1:] == [{"id": "p1", "result": 2}]
    assert bench.behind.heard[1:] == [("answer", "c", b'{"r":1}', None)]


@pytest.mark.parametrize("method", ["proxy/initialize", "_proxy/initialize"])
@pytest.mark.parametrize("role", ["client", "proxy", "agent"])
def test_only_the_conductor_initializes_proxies(role, method):
    bench = Bench(role)

    bench.feed({"id": 9, "method": method, "params": {}}, {"method": method, "params": {}})

    problem = "initialize/proxy requests are only sent by the conductor"
    error = {"code": -32600, "message": "Invalid request", "data": problem}
    assert bench.written() == [{"id": 9, "error": error}]
    assert bench.before.heard == []
    assert [message for *_, message in bench.reports] == [{"method": method}] * 2


@pytest.mark.parametrize(
    "inner",
    [
        "proxy/initialize",
        "_proxy/initialize",
        "proxy/successor",
        "_proxy/successor",
    ],
)
@pytest.mark.parametrize("outer", ["proxy", "_proxy"])
def test_an_envelope_with_a_method_of_the_conductor_is_refused(outer, inner):
    bench = Bench("proxy")

    bench.feed(envelope(outer, inner, {"method": "x", "params": {}}, id="p1"))

    (reply,) = bench.written()
    assert (reply["id"], reply["error"]["code"]) == ("p1", -32600)
    assert bench.behind.heard == bench.before.heard == []


@pytest.mark.parametrize("inner", ["proxy/initialize", "_proxy/successor"])
def test_nested_envelopes_without_an_id_are_dropped(inner):
    bench = Bench("proxy")

    bench.feed(envelope("proxy", inner, {"method": "x", "params": {}}), envelope("proxy", "ok", {}))

    assert bench.behind.heard == [("notification", "ok", b"{}")]
    assert bench.written() == []
    assert len(bench.reports) == 1


@pytest.mark.parametrize("role", ["client", "agent"])
@pytest.mark.parametrize("dialect", ["proxy", "_proxy"])
def test_a_component_without_a_successor_may_not_send_envelopes(role, dialect):
    bench = Bench(role)

    bench.feed(envelope(dialect, "m", {}, id=1), *[envelope(dialect, "m", {})] * 3)

    (reply,) = bench.written()
    assert reply["error"]["code"] == -32600
    assert "has no successor" in reply["error"]["data"]
    assert bench.before.heard == []
    assert len(bench.reports) == 4


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


# -- the parent, in proxy mode -----------------------------------------------------------------


@pytest.mark.parametrize("dialect", ["proxy", "_proxy"])
def test_the_init_of_a_parent_says_its_dialect(dialect):
    bench = Bench("parent", dialect="proxy")

    bench.feed({"id": 1, "method": f"{dialect}/initialize", "params": {"protocolVersion": 1}})
    bench.link.enveloped.notify("m", b"{}")

    assert bench.before.heard == [("request", "initialize", b'{"protocolVersion":1}')]
    assert [call.method for call in bench.before.asked] == ["initialize"]
    assert bench.written() == [envelope(dialect, "m", {})]


def test_a_conductor_in_proxy_mode_refuses_a_plain_initialize():
    bench = Bench("parent")

    bench.feed({"id": 1, "method": "initialize", "params": {}})

    (reply,) = bench.written()
    assert (reply["id"], reply["error"]["code"]) == (1, -32600)
    assert "proxy/initialize" in reply["error"]["data"]


# -- batches -----------------------------------------------------------------------------------


def test_a_batch_of_notifications_is_forwarded_as_single_messages():
    bench = Bench("proxy", dialect="_proxy")

    bench.link.plain.notify_batch(NotificationBatch("u", [b'{"a":1}', b'{"a":2}']))
    bench.link.enveloped.notify_batch(NotificationBatch("u", [b'{"a":1}', b'{"a":2}']))

    assert bench.written() == [
        {"method": "u", "params": {"a": 1}},
        {"method": "u", "params": {"a": 2}},
        envelope("_proxy", "u", {"a": 1}),
        envelope("_proxy", "u", {"a": 2}),
    ]


@in_either_notation
def test_the_envelopes_of_a_batch_are_removed_one_by_one(write):
    bench = Bench("proxy", write=write)
    bench.feed({"id": 1, "method": "m"}, envelope("proxy", "m", id=2))
    bench.before.heard.clear()
    bench.behind.heard.clear()

    bench.feed(
        envelope("proxy", "u", {"n": 1}),
        envelope("proxy", "u", {"n": 2}),
        envelope("proxy", "v", {"n": 3}),
        envelope("proxy", "v", [4]),
        envelope("proxy", "v"),
        envelope("proxy", "proxy/successor", {}),
        envelope("proxy", **cancel(2)),
        envelope("proxy", "u", {"n": 5}),
        {"method": "proxy/successor", "params": {"method": 6}},
        envelope("proxy", "u", {"n": 7}),
    )

    def params(number):
        return write({"n": number}).encode()

    assert bench.behind.heard == [
        ("notification", "u", params(1)),
        ("notification", "u", params(2)),
        ("notification", "v", params(3)),
        ("notification", "v", b"[4]"),
        ("notification", "v", None),
        ("cancel", "m"),
        ("notification", "u", params(5)),
        ("notification", "u", params(7)),
    ]
    assert bench.before.heard == []
    assert len(bench.reports) == 2


# -- the end -----------------------------------------------------------------------------------


def test_a_disconnect_answers_requests_to_the_peer_and_cancels_its_own():
    bench = Bench("proxy")
    bench.link.plain.request(InFlightRequest("a", bench.before), "a", None)
    bench.link.enveloped.request(InFlightRequest("b", bench.behind), "b", None)
    bench.feed({"id": 1, "method": "c"}, envelope("proxy", "d", id=2))

    bench.link.disconnect(FailureErrors.plain(b'{"code":-1,"message":"gone"}'))

    why = b'{"code":-1,"message":"gone"}'
    assert bench.before.heard == [
        ("request", "c", None),
        ("answer", "a", None, why),
        ("cancel", "c"),
    ]
    assert bench.behind.heard == [
        ("request", "d", None),
        ("answer", "b", None, why),
        ("cancel", "d"),
    ]


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


def test_a_response_without_a_request_is_reported():
    bench = Bench("agent")

    bench.feed({"id": 5, "result": {}})

    assert bench.reports == [("malformed message", "an answer to no request (id 5)", {})]


def test_a_late_response_is_dropped_and_reported_as_what_it_is():
    bench = Bench("agent")
    call = InFlightRequest("session/load", bench.before)
    bench.link.plain.request(call, "session/load", None)
    bench.link.fail_request(call, "too late", 30.0)

    bench.feed({"id": 1, "result": {}}, {"id": 1, "result": {}})

    late, second = bench.reports
    assert (late[0], late[2]) == ("late answer dropped", {"method": "session/load"})
    assert late[1].startswith("the request was sent 30.")
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
