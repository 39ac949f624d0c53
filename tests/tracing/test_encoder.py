"""Many notifications in one step have the records that they have one by one; requests and their
responses have each other's numbers."""

from __future__ import annotations

import json

import pytest

from conductor.jsonrpc.notification_batch import NotificationBatch
from conductor.routing.trace import Mark, TraceStage
from conductor.secrets import masking
from conductor.tracing.encoder import Encoder
from conductor.tracing.recorder import TraceRecorder

SECRET = "hunter2-hunter2"
PARAMS_START = b'{"jsonrpc":"2.0","method":"session/update","params":'


@pytest.fixture(autouse=True)
def known_secret(monkeypatch):
    monkeypatch.setattr(masking, "_secrets", frozenset())
    masking.register_secrets([SECRET])


@pytest.fixture
def port():
    recorder = TraceRecorder("review")
    recorder.attach([])
    return TraceStage(recorder, "client", "agent", "agent")


def update(session="s1", **members):
    return {"sessionId": session, "update": {"sessionUpdate": "x", **members}}


def params_of(line):
    return line[len(PARAMS_START) : line.rindex(b"}")].strip()


def line(params):
    return PARAMS_START + json.dumps(params, separators=(",", ":")).encode() + b"}\n"


def records(entries, payloads="full", encoder=None):
    encoder = encoder or Encoder(payloads)
    lines = encoder.encode(entries)
    assert lines.endswith(b"\n")
    return [json.loads(each) for each in lines.splitlines()]


LINES = {
    "one session": [line(update(n=n)) for n in range(30)],
    "sessions in turn": [line(update(f"s{n % 3}", n=n)) for n in range(9)],
    "a secret in a text": [line(update(text=each)) for each in ("x", SECRET, "")],
    "ids of other lengths": [line(update(each)) for each in ("s1", "s10", "s100", "s1")],
    "an escaped id": [line(update("sé")), line(update('s"'))],
    "the id behind other members": [line({"x": 1, "sessionId": "s1"}), line(update())],
    "no session": [line(update()), line({}), line({})],
    "large params": [line(update(text="x" * size)) for size in (0, 3000, 100_000)],
    "white space behind params": [line(update()).replace(b"}}}\n", b"}} }\n")] * 2,
    "carriage returns": [line(update())[:-1] + b"\r\n", line(update())],
    "carriage returns in params": [line(update()).replace(b',"update', b',\r"update')] * 2,
    "a token": [line(update(n=1)), line(update(rawInput={"apiKey": "abc"})), line(update(n=2))],
    "a secret as session": [line(update(SECRET)), line(update())],
}


@pytest.mark.parametrize("payloads", ["full", "head", "none"])
@pytest.mark.parametrize("name", LINES)
def test_lines_of_an_agent_have_the_records_of_single_notifications(port, name, payloads):
    lines = LINES[name]
    batch = NotificationBatch("session/update", None, b"".join(lines), len(lines))
    one = [
        found
        for number, each in enumerate(lines)
        for found in records(
            [(1.0, port, "notification", "session/update", params_of(each))],
            encoder=numbered(payloads, number),
        )
    ]

    found = records([(1.0, port, "notification", "session/update", batch)], payloads)

    assert SECRET not in json.dumps(found)
    assert found == one


def numbered(payloads, last):
    encoder = Encoder(payloads)
    encoder.last = last
    return encoder


@pytest.mark.parametrize("first", [0, 999])
def test_numbers_and_causes_are_consecutive(port, first):
    lines = [line(update(n=n)) for n in range(30)]
    batch = NotificationBatch("session/update", None, b"".join(lines), len(lines))
    mark, cause = Mark(1.0), Mark(0.5)
    mark.n, cause.n = first + 1, first + 5_000

    entry = (1.0, port, "notification", "session/update", batch, 0, False, mark, cause)
    found = records([entry])

    assert [each["n"] for each in found] == list(range(first + 1, first + 31))
    assert [each["cause"] for each in found] == list(range(first + 5000, first + 5030))


def test_single_notifications_have_their_own_times_numbers_and_causes(port):
    known, unknown = Mark(0.0), Mark(0.0)
    known.n = 7
    marks = [Mark(0.0) for _ in range(3)]
    start = port.tracer.started
    entries = [
        (start + 1, port, "notification", "_x", b'{"sessionId":"s1"}', 0, False, marks[0], known),
        (start + 2, port, "notification", "_x", b'{"sessionId":"s2"}', 0, False, marks[1], unknown),
        (start + 3, port, "notification", "_x", b"[]", 0, False, marks[2], marks[0]),
    ]

    found = records(entries)

    assert [each["ts"] for each in found] == [1, 2, 3]
    assert [each["n"] for each in found] == [1, 2, 3] == [each.n for each in marks]
    assert [each.get("cause") for each in found] == [7, None, 1]
    assert [each.get("session") for each in found] == ["s1", "s2", None]
    assert [each["method"] for each in found] == ["_x"] * 3


def test_a_record_keeps_its_number_when_it_is_written_again(port):
    marks = [Mark(0.0), Mark(0.0)]
    entries = [(1.0, port, "notification", "_x", b"{}", 0, False, each, None) for each in marks]
    encoder = Encoder()

    assert [each["n"] for each in records(entries, encoder=encoder)] == [1, 2]
    assert [each["n"] for each in records(entries[1:], encoder=encoder)] == [2]


def test_a_name_that_becomes_a_known_secret_is_masked_from_then_on(port):
    entry = (1.0, port, "notification", "session/update", b'{"sessionId":"s1"}')
    encoder = Encoder()
    (before,) = records([entry], encoder=encoder)
    masking.register_secrets(["review"])

    (after,) = records([entry], encoder=encoder)

    assert (before["chain"], after["chain"]) == ("review", "***")


def test_a_response_has_number_session_and_causes_of_its_request(port):
    cause = Mark(0.0)
    cause.n = 5
    start = port.tracer.started
    asked = (b'{"sessionId":"s1"}', 99, "x", Mark(1.0), cause)
    entries = [
        (start + 1, port, "request", "session/prompt", *asked),
        (start + 1.25, port, "response", "session/prompt", b"{}", 99, False, Mark(1.1), cause),
    ]

    request, response = records(entries)

    assert [request["n"], response["n"]] == [1, 2]
    assert response["id"] == response["request"] == request["id"] == 1
    assert request["session"] == response["session"] == "s1"
    assert request["cause"] == response["cause"] == 5
    assert response["elapsed"] == 0.25


def test_responses_of_a_request_that_passes_a_hop_twice_come_in_reverse_order(port):
    request = (1.0, port, "request", "session/prompt", b"{}", 99, 7)
    response = (1.25, port, "response", "session/prompt", b"{}", 99, False)

    found = records([request, request, response, response])

    assert [each.get("request") for each in found] == [None, None, 2, 1]


@pytest.mark.parametrize("method", ["mcp/message", "session/update"])
def test_what_many_messages_are_the_cause_of_is_linked_to_each(port, method):
    params = [b'{"method":"a","params":{}}', b'{"method":"b","params":{}}']
    mark = Mark(1.0)
    entry = (1.0, port, "notification", method, NotificationBatch(method, params), 0, False, mark)
    later = (2.0, port, "notification", "_x", b"{}", 0, False, Mark(2.0), mark.part(1))

    found = records([entry, later])

    assert [each.get("cause") for each in found] == [None, None, 2]
