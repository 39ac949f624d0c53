"""The startup gate: queueing, failed starts, retries."""

from __future__ import annotations

import pytest
from support.peers.port import Flusher, ListTransport, Neighbour, cancel
from support.raw_json import compact, dumps

from conductor.chain.startup_gate import StartupGate
from conductor.errors import StartError
from conductor.jsonrpc.connection import Connection
from conductor.jsonrpc.in_flight import InFlightRequest
from conductor.jsonrpc.notification_batch import NotificationBatch
from conductor.routing.link import Link
from conductor.routing.message_queue import MESSAGE_OVERHEAD
from conductor.routing.port import UnconnectedPort, connect_ports


class GateBench:
    """A client played by the test, the gate, and a first component that records its events."""

    def __init__(self, failure_context=None):
        self.transport, self.flusher = ListTransport(), Flusher()
        link = Link("client", "client", lambda *report: None)
        link.connect(Connection(self.transport, link, self.flusher, answers_malformed=True))
        self.link = link
        self.first = Neighbour()
        self.error = None
        self.opened = 0
        self.gate = StartupGate(
            start=self._start,
            patch_result=lambda result: result + b" ",
            on_open=self._opened,
            on_start_failed=lambda: None,
            failure_context=failure_context,
        )
        link.plain.insert(self.gate)

    def _start(self):
        if self.error is not None:
            raise self.error
        connect_ports(self.link.plain, self.first)

    def _opened(self):
        self.opened += 1

    def feed(self, *messages):
        for message in messages:
            line = compact({"jsonrpc": "2.0", **message}) + "\n"
            self.link.connection.feed(line.encode())

    def written(self):
        self.flusher.flush()
        found = self.transport.messages()
        assert all(message.pop("jsonrpc") == "2.0" for message in found)
        return found

    def answer(self, result=b"{}", error=None):
        (call,) = [call for call in self.first.asked if call.method == "initialize"][-1:]
        self.first.neighbour.respond(call, None if error else result, error)


INIT = {"id": 0, "method": "initialize", "params": {"protocolVersion": 1}}


def refused(id, problem):
    return {"id": id, "error": {"code": -32600, "message": "Invalid request", "data": problem}}


def test_nothing_starts_before_initialize():
    bench = GateBench()

    bench.feed({"id": 1, "method": "session/new"}, {"method": "session/cancel"}, cancel(1))

    assert bench.written() == [refused(1, "expected `initialize` request")]
    assert (bench.gate.state, bench.first.heard) == ("waiting", [])


def test_a_long_initialize_is_refused_and_a_shorter_one_is_taken():
    bench = GateBench()
    meta = {"_meta": {"x": "y" * 256 * 1024}}

    bench.feed({**INIT, "params": {**INIT["params"], **meta}})

    (answer,) = bench.written()
    assert "over the limit of 262144 bytes (max_initialize_bytes)" in answer["error"]["data"]
    assert (bench.gate.state, bench.first.heard) == ("waiting", [])
    bench.feed(INIT)
    bench.answer()
    assert bench.written() == [{"id": 0, "result": {}}]


def test_messages_during_the_start_are_delivered_in_order_after_the_response():
    bench = GateBench()
    bench.feed(
        INIT,
        {"id": 1, "method": "a", "params": {"x": 1}},
        {"method": "b"},
        {"method": "b", "params": {"y": 1}},
        {"id": 2, "method": "c"},
    )
    assert bench.first.heard == [("request", "initialize", b'{"protocolVersion":1}')]
    assert bench.gate.size == 4 * MESSAGE_OVERHEAD + len(b'{"x":1}{"y":1}')

    bench.answer(b'{"ok":1}')

    assert bench.written() == [{"id": 0, "result": {"ok": 1}}]
    assert bench.first.heard[1:] == [
        ("request", "a", b'{"x":1}'),
        ("notification", "b", None),
        ("notification", "b", b'{"y":1}'),
        ("request", "c", None),
    ]
    assert (bench.gate.state, bench.gate.size, bench.opened) == ("open", 0, 1)


def test_the_gate_is_removed_with_the_first_request_to_the_initialized_chain():
    bench = GateBench()
    bench.feed(INIT)
    bench.answer()

    bench.feed({"id": 1, "method": "a"})
    bench.first.neighbour.notify("n", b"{}")
    bench.first.neighbour.respond(bench.first.asked[-1], b"1", None)

    assert "startup gate" not in bench.link.plain.stages
    assert bench.written()[1:] == [{"method": "n", "params": {}}, {"id": 1, "result": 1}]


def test_of_a_repeated_initialize_the_latest_params_and_result_count():
    bench = GateBench()
    bench.feed(INIT)
    bench.answer(b'{"x":1}')
    bench.feed({**INIT, "id": 1, "params": {"protocolVersion": 2}})
    bench.answer(b'{"protocolVersion":2}')

    assert bench.written() == [
        {"id": 0, "result": {"x": 1}},
        {"id": 1, "result": {"protocolVersion": 2}},
    ]
    assert (bench.gate.params, bench.gate.version) == (b'{"protocolVersion":2}', 2)
    assert (bench.gate.answer, bench.opened) == (b'{"protocolVersion":2} ', 2)


def test_a_second_initialize_is_refused_while_the_first_is_in_flight():
    bench = GateBench()

    bench.feed(INIT, INIT | {"id": 1})

    assert bench.written() == [refused(1, "`initialize` is already under way")]


def test_messages_from_components_during_the_start_reach_the_client():
    bench = GateBench()
    bench.feed(INIT)

    bench.first.neighbour.notify("n", None)
    bench.first.neighbour.notify_batch(NotificationBatch("u", [b"{}", b"{}"]))
    bench.first.neighbour.request(InFlightRequest("question", bench.first), "question", None)
    bench.feed({"id": 1, "result": "yes"})

    assert bench.written() == [
        {"method": "n"},
        {"method": "u", "params": {}},
        {"method": "u", "params": {}},
        {"id": 1, "method": "question"},
    ]
    assert bench.first.heard[1:] == [("answer", "question", b'"yes"', None)]


def test_a_cancelled_initialize_is_cancelled_in_the_chain_which_answers_it():
    bench = GateBench()
    bench.feed(INIT, cancel(0), cancel(0))

    assert bench.first.heard[1:] == [("cancel", "initialize")]
    bench.answer(error=b'{"code":-32800,"message":"Request cancelled"}')

    error = {"code": -32800, "message": "Request cancelled"}
    assert bench.written() == [{"id": 0, "error": error}]
    assert bench.gate.state == "waiting"


def test_a_request_that_waits_keeps_its_cancellation():
    bench = GateBench()
    bench.feed(INIT, {"id": 1, "method": "a"}, cancel(1))

    bench.answer()

    assert bench.first.asked[-1].cancelled


@pytest.mark.parametrize("how", ["answered", "cannot start", "failed later"])
def test_a_failed_initialize_answers_all_waiting_requests_and_may_be_retried(how):
    bench = GateBench()
    error = {
        "code": -32603,
        "message": "component 'x' did not start: no",
        "data": {"component": "x", "reason": "no"},
    }
    if how == "cannot start":
        bench.error = StartError("x", "no")
    bench.feed(INIT)
    if how != "cannot start":
        bench.feed({"id": 1, "method": "a"}, {"method": "b"})
    if how == "answered":
        bench.answer(error=dumps(error))
    if how == "failed later":
        bench.gate.fail(StartError("x", "no"))

    waiting = [0] if how == "cannot start" else [0, 1]
    assert bench.written() == [{"id": id, "error": error} for id in waiting]
    assert (bench.gate.state, bench.gate.size) == ("waiting", 0)

    bench.error = None
    bench.feed(INIT | {"id": 5})
    bench.answer()
    assert bench.written() == [{"id": 5, "result": {}}]
    assert [event[1] for event in bench.first.heard if event[1] != "initialize"] == []


def test_a_late_answer_to_an_attempt_that_failed_is_ignored():
    bench = GateBench()
    bench.feed(INIT)
    (late,) = bench.first.asked
    bench.gate.fail(StartError("x", "no"))
    bench.feed(INIT | {"id": 1})
    bench.written()

    bench.first.neighbour.respond(late, b'"late"', None)
    assert bench.written() == []
    bench.answer()

    assert bench.written() == [{"id": 1, "result": {}}]


def test_an_unconnected_port_refuses_requests():
    bench = GateBench()
    bench.link.plain.remove(bench.gate)
    connect_ports(bench.link.plain, UnconnectedPort())

    bench.feed({"id": 1, "method": "m"}, {"method": "n"})

    (reply,) = bench.written()
    assert (reply["id"], reply["error"]["code"]) == (1, -32603)
