"""What the client meets until its chain is initialized."""

from __future__ import annotations

import json

import pytest
from support.recording_connection import Flusher, ListTransport, Neighbour, cancel

from conductor.chain.startup_gate import StartupGate
from conductor.errors import StartError
from conductor.jsonrpc.connection import Connection
from conductor.jsonrpc.in_flight import InFlightRequest
from conductor.jsonrpc.notification_batch import NotificationBatch
from conductor.routing.link import Link
from conductor.routing.message_queue import MESSAGE_OVERHEAD
from conductor.routing.port import UnconnectedPort, connect_ports


class Porch:
    """A client that the test plays, the door, and a first component that writes things down."""

    def __init__(self):
        self.transport, self.flusher = ListTransport(), Flusher()
        link = Link("client", "client", lambda *report: None)
        link.connection = Connection(self.transport, link, self.flusher, reports_malformed=True)
        self.link = link
        self.first = Neighbour()
        self.error = None
        self.opened = 0
        self.gate = StartupGate(
            link.plain,
            start=self._start,
            patch_result=lambda result: result + b" ",
            on_open=self._opened,
            on_start_failed=lambda: None,
        )

    def _start(self):
        if self.error is not None:
            raise self.error
        return self.first

    def _opened(self):
        self.opened += 1

    def feed(self, *messages):
        for message in messages:
            line = json.dumps({"jsonrpc": "2.0", **message}) + "\n"
            self.link.connection.feed(line.encode())

    def written(self):
        self.flusher.flush()
        found = self.transport.messages()
        assert all(message.pop("jsonrpc") == "2.0" for message in found)
        return found

    def answer(self, result=b"{}", error=None):
        (call,) = [call for call in self.first.calls if call.method == "initialize"][-1:]
        self.first.neighbour.respond(call, None if error else result, error)


INIT = {"id": 0, "method": "initialize", "params": {"protocolVersion": 1}}


def refused(id, problem):
    return {"id": id, "error": {"code": -32600, "message": "Invalid request", "data": problem}}


def test_nothing_starts_before_initialize():
    porch = Porch()

    porch.feed({"id": 1, "method": "session/new"}, {"method": "session/cancel"}, cancel(1))

    assert porch.written() == [refused(1, "expected `initialize` request")]
    assert (porch.gate.state, porch.first.events) == ("waiting", [])


def test_a_long_initialize_is_refused_and_a_shorter_one_is_taken():
    porch = Porch()
    meta = {"_meta": {"x": "y" * 256 * 1024}}

    porch.feed({**INIT, "params": {**INIT["params"], **meta}})

    (answer,) = porch.written()
    assert "over the limit of 262144 bytes (max_initialize_bytes)" in answer["error"]["data"]
    assert (porch.gate.state, porch.first.events) == ("waiting", [])
    porch.feed(INIT)
    porch.answer()
    assert porch.written() == [{"id": 0, "result": {}}]


def test_what_the_client_sends_meanwhile_is_delivered_in_order_after_the_answer():
    porch = Porch()
    porch.feed(
        INIT,
        {"id": 1, "method": "a", "params": {"x": 1}},
        {"method": "b"},
        {"method": "b", "params": {"y": 1}},
        {"id": 2, "method": "c"},
    )
    assert porch.first.events == [("request", "initialize", b'{"protocolVersion": 1}')]
    assert porch.gate.size == 4 * MESSAGE_OVERHEAD + len(b'{"x": 1}{"y": 1}')

    porch.answer(b'{"ok":1}')

    assert porch.written() == [{"id": 0, "result": {"ok": 1}}]
    assert porch.first.events[1:] == [
        ("request", "a", b'{"x": 1}'),
        ("notification", "b", None),
        ("notification", "b", b'{"y": 1}'),
        ("request", "c", None),
    ]
    assert (porch.gate.state, porch.gate.size, porch.opened) == ("open", 0, 1)


def test_the_door_is_out_of_the_way_when_it_is_open():
    porch = Porch()
    porch.feed(INIT)
    porch.answer()

    porch.feed({"id": 1, "method": "a"})
    porch.first.neighbour.notify("n", b"{}")
    porch.first.neighbour.respond(porch.first.calls[-1], b"1", None)

    assert porch.first.neighbour is porch.link.plain
    assert porch.written()[1:] == [{"method": "n", "params": {}}, {"id": 1, "result": 1}]


def test_a_second_initialize_is_refused_while_the_first_is_under_way():
    porch = Porch()

    porch.feed(INIT, INIT | {"id": 1})

    assert porch.written() == [refused(1, "`initialize` is already under way")]


def test_what_components_say_meanwhile_reaches_the_client_and_is_answered():
    porch = Porch()
    porch.feed(INIT)

    porch.first.neighbour.notify("n", None)
    porch.first.neighbour.notify_batch(NotificationBatch("u", [b"{}", b"{}"]))
    porch.first.neighbour.request(InFlightRequest("question", porch.first), "question", None)
    porch.feed({"id": 1, "result": "yes"})

    assert porch.written() == [
        {"method": "n"},
        {"method": "u", "params": {}},
        {"method": "u", "params": {}},
        {"id": 1, "method": "question"},
    ]
    assert porch.first.events[1:] == [("answer", "question", b'"yes"', None)]


def test_a_cancelled_initialize_is_cancelled_inside_and_answered_by_whoever_answers():
    porch = Porch()
    porch.feed(INIT, cancel(0), cancel(0))

    assert porch.first.events[1:] == [("cancel", "initialize")]
    porch.answer(error=b'{"code":-32800,"message":"Request cancelled"}')

    error = {"code": -32800, "message": "Request cancelled"}
    assert porch.written() == [{"id": 0, "error": error}]
    assert porch.gate.state == "waiting"


def test_a_request_that_waits_keeps_its_cancellation():
    porch = Porch()
    porch.feed(INIT, {"id": 1, "method": "a"}, cancel(1))

    porch.answer()

    assert porch.first.calls[-1].cancelled


@pytest.mark.parametrize("how", ["answered", "cannot start", "failed later"])
def test_a_failed_initialize_answers_everyone_who_waits_and_may_be_tried_again(how):
    porch = Porch()
    error = {
        "code": -32603,
        "message": "component 'x' did not start: no",
        "data": {"component": "x", "reason": "no"},
    }
    if how == "cannot start":
        porch.error = StartError("x", "no")
    porch.feed(INIT)
    if how != "cannot start":
        porch.feed({"id": 1, "method": "a"}, {"method": "b"})
    if how == "answered":
        porch.answer(error=json.dumps(error).encode())
    if how == "failed later":
        porch.gate.fail(StartError("x", "no"))

    waiting = [0] if how == "cannot start" else [0, 1]
    assert porch.written() == [{"id": id, "error": error} for id in waiting]
    assert (porch.gate.state, porch.gate.size) == ("waiting", 0)

    porch.error = None
    porch.feed(INIT | {"id": 5})
    porch.answer()
    assert porch.written() == [{"id": 5, "result": {}}]
    assert [event[1] for event in porch.first.events if event[1] != "initialize"] == []


def test_a_late_answer_to_an_attempt_that_failed_is_ignored():
    porch = Porch()
    porch.feed(INIT)
    (late,) = porch.first.calls
    porch.gate.fail(StartError("x", "no"))
    porch.feed(INIT | {"id": 1})
    porch.written()

    porch.first.neighbour.respond(late, b'"late"', None)
    assert porch.written() == []
    porch.answer()

    assert porch.written() == [{"id": 1, "result": {}}]


def test_a_side_that_is_linked_to_nothing_answers_requests():
    porch = Porch()
    connect_ports(porch.link.plain, UnconnectedPort())

    porch.feed({"id": 1, "method": "m"}, {"method": "n"})

    (reply,) = porch.written()
    assert (reply["id"], reply["error"]["code"]) == (1, -32603)
