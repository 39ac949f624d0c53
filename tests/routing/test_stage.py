"""Stages of a port: their order, what they see, and what they take."""

from __future__ import annotations

import pytest
from support.peers.port import Flusher, ListTransport, Neighbour

from conductor.jsonrpc.connection import Connection
from conductor.jsonrpc.in_flight import InFlightRequest
from conductor.routing import stage as stages
from conductor.routing.link import Link
from conductor.routing.port import connect_ports
from conductor.routing.stage import Stage

UPDATE = b'{"jsonrpc":"2.0","method":"session/update","params":{"n":%d}}\n'


@pytest.fixture(autouse=True)
def rows(monkeypatch):
    monkeypatch.setattr(stages, "ORDER", ("outer", "inner", *stages.ORDER))


class Bench:
    """An agent behind a link, with these stages."""

    def __init__(self, *inserted):
        self.seen = []
        self.transport, self.flusher = ListTransport(), Flusher()
        self.link = Link("agent", "agent", lambda *report: None)
        self.link.connect(Connection(self.transport, self.link, self.flusher))
        self.neighbour = Neighbour()
        connect_ports(self.neighbour, self.link.plain)
        for each in inserted:
            self.insert(each)

    def insert(self, stage):
        stage.seen = self.seen
        self.link.plain.insert(stage)

    def feed(self, *lines):
        self.link.connection.feed(b"".join(lines))

    def ask(self, method):
        call = InFlightRequest(method, self.neighbour)
        self.link.plain.request(call, method, b"{}")
        return call

    def written(self):
        self.flusher.flush()
        return [message.get("method") for message in self.transport.messages()]


class Noting(Stage):
    """Notes what it sees, and passes it on."""

    def __init__(self, name, sent=frozenset(), received=frozenset()):
        self.name, self.sent, self.received = name, frozenset(sent), frozenset(received)

    def send_request(self, forward, call, method, params):
        self.seen.append((self.name, "asked", method))
        forward(call, method, params)

    def receive_response(self, forward, call, result, error):
        self.seen.append((self.name, "answered", call.method))
        forward(call, result, error)

    def send_cancel(self, forward, call):
        self.seen.append((self.name, "cancelled", call.method))
        forward(call)

    def receive_notification(self, forward, method, params):
        self.seen.append((self.name, "told", bytes(params)))
        forward(method, params)


def test_messages_to_the_component_pass_the_outer_stage_first_and_its_answers_last():
    bench = Bench(Noting("inner", sent={"m"}), Noting("outer", sent={"m"}))

    call = bench.ask("m")
    call.cancel()
    bench.feed(b'{"jsonrpc":"2.0","id":1,"result":{}}\n')

    assert bench.seen == [
        ("outer", "asked", "m"),
        ("inner", "asked", "m"),
        ("outer", "cancelled", "m"),
        ("inner", "cancelled", "m"),
        ("inner", "answered", "m"),
        ("outer", "answered", "m"),
    ]
    assert bench.neighbour.heard == [("answer", "m", b"{}", None)]


def test_a_stage_sees_nothing_of_methods_that_it_does_not_name():
    bench = Bench(Noting("outer", sent={"m"}))

    bench.ask("other").cancel()
    bench.feed(b'{"jsonrpc":"2.0","id":1,"result":{}}\n', UPDATE % 1)

    assert bench.seen == []


def test_notifications_of_a_block_reach_a_stage_one_by_one_in_order():
    bench = Bench(Noting("outer", received={"session/update"}))

    bench.feed(UPDATE % 1, UPDATE % 2, UPDATE % 3)

    assert [what for _, _, what in bench.seen] == [b'{"n":1}', b'{"n":2}', b'{"n":3}']
    assert [each[2] for each in bench.neighbour.heard] == [b'{"n":1}', b'{"n":2}', b'{"n":3}']


class Refusing(Stage):
    name = "inner"
    sent = frozenset({"m"})

    def send_request(self, forward, call, method, params):
        self.port.answer(self, call, None, b'{"code":1,"message":"no"}')


def test_an_answer_of_a_stage_passes_those_that_the_request_has_passed_and_no_others():
    bench = Bench(Noting("outer", sent={"m"}), Refusing())

    bench.ask("m")

    assert bench.seen == [("outer", "asked", "m"), ("outer", "answered", "m")]
    assert bench.written() == []
    assert bench.neighbour.heard == [("answer", "m", None, b'{"code":1,"message":"no"}')]


def test_a_stage_without_a_row_is_an_error_that_names_it():
    with pytest.raises(LookupError, match="'counts' has no row"):
        Bench(Noting("counts"))


def test_a_stage_can_be_removed_while_it_handles_a_message():
    class Once(Noting):
        def send_request(self, forward, call, method, params):
            self.port.remove(self)
            super().send_request(forward, call, method, params)

    bench = Bench(Once("outer", sent={"m"}))

    bench.ask("m")
    bench.ask("m")

    assert bench.seen == [("outer", "asked", "m")]
    assert bench.written() == ["m", "m"]
