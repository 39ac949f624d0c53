"""Usual requests and responses have the records that others have."""

from __future__ import annotations

import json

import pytest
from msgspec import Raw

from conductor import redaction
from conductor.routing.port import UnconnectedPort
from conductor.routing.traced_port import Mark
from conductor.tracing.encoder import Encoder
from conductor.tracing.line_block import LineBlock
from conductor.tracing.masking import current_masker
from conductor.tracing.recorder import TraceRecorder
from conductor.tracing.trace_component import TraceComponent

SECRET = "hunter2-hunter2"
PARAMS = b'{"sessionId":"s1","prompt":[{"type":"text","text":"hi"}]}'


@pytest.fixture(autouse=True)
def known_secret(monkeypatch):
    for name in ("_secrets", "_pattern"):
        monkeypatch.setattr(redaction, name, getattr(redaction, name))
    redaction.register_secrets([SECRET, "123456"])


@pytest.fixture
def ports():
    """Toward the agent, and back."""
    recorder = TraceRecorder("review")
    recorder.components = [
        TraceComponent("client", "Client", "client"),
        TraceComponent("agent", "Agent", "process"),
    ]
    there = recorder.trace(UnconnectedPort(), "agent", "client")
    back = recorder.trace(UnconnectedPort(), "client", "agent")
    recorder.started = 0.0
    return there, back


def exchange(ports, method="session/prompt", params=PARAMS, wire_id=7, result=b'{"a":1}', **more):
    """The entries of a request and its response; payloads that came as lines are `Raw`."""
    there, back = ports
    marks = more.get("marks", [])
    ended = more.get("ended", 1.25)
    kind, is_cancelled = more.get("kind", "response"), more.get("is_cancelled", False)
    return [
        (1.0, there, "request", method, Raw(params), 99, wire_id, *marks[:2]),
        (ended, back, kind, method, Raw(result), 99, is_cancelled, *marks[2:]),
    ]


def records(entries, payloads="full"):
    """With sessions that are known already."""
    encoder = Encoder(payloads)
    port = entries[0][1]
    encoder.encode([(0.5, port, "request", entries[0][3], Raw(PARAMS), 1, 2)])
    lines = encoder.encode(entries).masked(current_masker())
    return [json.loads(each) for each in lines.splitlines()]


def as_others(entries):
    """The same with payloads of the conductor's own."""
    return [(*each[:4], bytes(each[4]), *each[5:]) for each in entries]


CASES = {
    "usual": {},
    "at once": {"ended": 1.0},
    "less than a millisecond": {"ended": 1.000_25},
    "longer than a second": {"ended": 3.5},
    "back in time": {"ended": 0.75},
    "a string as id": {"wire_id": "x"},
    "a secret as id": {"wire_id": SECRET},
    "a number that is a secret as id": {"wire_id": 123456},
    "a negative id": {"wire_id": -1},
    "a secret in params": {"params": PARAMS.replace(b"hi", SECRET.encode())},
    "a secret in a result": {"result": b'{"apiKey":"abc"}'},
    "authentication": {"method": "authenticate", "params": b'{"methodId":"x","key":"abc"}'},
    "authentication by its new name": {"method": "auth/login"},
    "a set-up": {"method": "session/load", "result": b'{"sessionId":"s2"}'},
    "MCP": {"method": "mcp/message", "params": b'{"method":"tools/list","params":{"a":1}}'},
    "no session": {"method": "_x", "params": b'{"a":1}'},
    "white space": {"params": PARAMS.replace(b",", b",\r"), "result": b'{"a":\r1}'},
    "an error": {"kind": "error", "result": b'{"code":1,"message":"x"}'},
    "cancelled": {"is_cancelled": True},
}


@pytest.mark.parametrize("payloads", ["full", "head", "none"])
@pytest.mark.parametrize("name", CASES)
def test_a_request_and_its_response_have_the_records_of_others(ports, name, payloads):
    entries = exchange(ports, **CASES[name])

    found = records(entries, payloads)

    assert found == records(as_others(entries), payloads)
    assert SECRET not in json.dumps(found)
    assert "abc" not in json.dumps(found)
    assert found[0]["wire_id"] != 123456


def test_numbers_and_causes_are_recorded(ports):
    cause = Mark(0.0)
    cause.n = 5
    marks = [Mark(1.0), cause, Mark(1.1), cause]
    request, response = records(exchange(ports, marks=marks))

    assert [request["n"], response["n"], marks[0].n, marks[2].n] == [2, 3, 2, 3]
    assert request["cause"] == response["cause"] == 5
    assert response["id"] == response["request"] == request["id"] == 2
    assert response["elapsed"] == 0.25


def test_responses_of_a_request_that_passes_a_hop_twice_come_in_reverse_order(ports):
    request, response = exchange(ports)

    found = records([request, request, response, response])

    assert [each["n"] for each in found] == [2, 3, 4, 5]
    assert [each.get("request") for each in found] == [None, None, 3, 2]


def test_the_usual_case_is_not_left_to_others(ports):
    encoder = Encoder()
    entries = exchange(ports)
    encoder.encode(entries)
    usual, block = encoder.messages._usual, LineBlock()

    assert usual.add_request(entries[0], block)
    assert usual.add_response(entries[1], block)
    assert block.searched == [PARAMS, b'{"a":1}']
