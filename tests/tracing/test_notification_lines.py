"""Many notifications in one step have the records that they have one by one."""

from __future__ import annotations

import json

import pytest

from conductor import redaction
from conductor.jsonrpc.notification_batch import PARAMS_START, NotificationBatch
from conductor.routing.port import UnconnectedPort
from conductor.routing.traced_port import Mark
from conductor.tracing.encoder import Encoder
from conductor.tracing.masking import current_masker
from conductor.tracing.recorder import TraceRecorder

SECRET = "hunter2-hunter2"
OTHER = "0d5f3c0e-7f3e-4b5c-9a55-7d8f6f1b2a33"


@pytest.fixture(autouse=True)
def known_secret(monkeypatch):
    for name in ("_secrets", "_pattern"):
        monkeypatch.setattr(redaction, name, getattr(redaction, name))
    redaction.register_secrets([SECRET])


@pytest.fixture
def port():
    recorder = TraceRecorder("review")
    recorder.attach([])
    return recorder.trace(UnconnectedPort(), "client", "agent")


def update(session="s1", **members):
    return {"sessionId": session, "update": {"sessionUpdate": "x", **members}}


def chunk(text="x", of="message"):
    content = {"type": "text", "text": text}
    return {
        "sessionId": "s1",
        "update": {"sessionUpdate": f"agent_{of}_chunk", "content": content},
    }


def params_of(line):
    return line[len(PARAMS_START) : line.rindex(b"}")].strip()


def line(params):
    return PARAMS_START + json.dumps(params, separators=(",", ":")).encode() + b"}\n"


def records(entries, payloads="full", encoder=None):
    encoder = encoder or Encoder(payloads)
    lines = encoder.encode(entries).masked(current_masker())
    assert lines.endswith(b"\n")
    return [json.loads(each) for each in lines.splitlines()]


LINES = {
    "one session": [line(update(n=n)) for n in range(30)],
    "sessions in turn": [line(update(f"s{n % 3}", n=n)) for n in range(9)],
    "one session, of other lengths": [line(update(text="x" * n)) for n in range(600)],
    "pieces of a text": [line(chunk(text=f"{n}")) for n in range(30)],
    "pieces of two texts": [line(chunk(of=each)) for each in ("message", "thought", "message")],
    "a piece of another text between": [
        line(chunk(of="thought" if n == 1 else "message")) for n in range(5)
    ],
    "another end of one line": [
        line(update(n=n))[: -3 if n == 1 else None] + b"} }\n" * (n == 1) for n in range(5)
    ],
    "a secret in pieces of a text": [line(chunk(text=each)) for each in ("x", SECRET, "")],
    "a name in pieces of a text": [line(chunk(text=each)) for each in ("", "password: abc1", "x")],
    "a header in pieces of a text": [line(chunk(text=each)) for each in ("x", "Cookie: abc1=2")],
    "ids of other lengths": [line(update(each)) for each in ("s1", "s10", "s100", OTHER, "s1")],
    "a long id": [line(update("s" * 200)), line(update("s" * 199))],
    "an escaped id": [line(update("sé")), line(update('s"'))],
    "the id behind other members": [line({"x": 1, "sessionId": "s1"}), line(update())],
    "an id as deep as the beginning": [line({"x": {"sessionId": "s2"}}), line(update())],
    "no session": [line({}), line({})],
    "short params": [line({"sessionId": ""}), line({"sessionId": "s"})],
    "large params": [line(update(text="x" * size)) for size in (0, 3000, 100_000)],
    "white space before the end": [line(update()).replace(b"}}}\n", b"}}} \n")] * 2,
    "white space behind params": [line(update()).replace(b"}}}\n", b"}} }\n")] * 2,
    "carriage returns": [line(update())[:-1] + b"\r\n", line(update())],
    "an update in an update": [line(update(x={"method": "session/update", "params": update("s2")}))]
    * 2,
    "a secret": [line(update(n=1)), line(update(text=f"a {SECRET}")), line(update(n=2))],
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
    encoder.messages.numbers.last = last
    return encoder


def test_the_size_is_that_of_the_params(port):
    lines = LINES["large params"]
    batch = NotificationBatch("session/update", None, b"".join(lines), len(lines))

    found = records([(1.0, port, "notification", "session/update", batch)])

    assert [each["size"] for each in found] == [len(params_of(each)) for each in lines]
    assert [each["size"] for each in found] == [
        len(json.dumps(each["params"], separators=(",", ":"))) for each in found
    ]


def test_tables_of_sizes_are_begun_again(port):
    sizes = [range(300), range(200, 600), range(100)]
    batches = [[line(update(text="x" * size)) for size in some] for some in sizes]
    entries = [
        (1.0, port, "notification", "session/update", NotificationBatch("", None, b"".join(each)))
        for each in batches
    ]

    found = records(entries)

    assert [each["size"] for each in found] == [
        len(params_of(each)) for lines in batches for each in lines
    ]
    assert [len(each["params"]["update"]["text"]) for each in found] == [
        size for some in sizes for size in some
    ]


@pytest.mark.parametrize("first", [0, 1, 997, 999, 1000, 1998, 999_990])
def test_numbers_and_causes_are_consecutive(port, first):
    lines = [line(update(n=n)) for n in range(1100)]
    batch = NotificationBatch("session/update", None, b"".join(lines), len(lines))
    mark, cause = Mark(1.0), Mark(0.5)
    mark.n, cause.n = first + 1, first + 5_000

    entry = (1.0, port, "notification", "session/update", batch, 0, False, mark, cause)
    found = records([entry])

    assert [each["n"] for each in found] == list(range(first + 1, first + 1101))
    assert [each["cause"] for each in found] == list(range(first + 5000, first + 6100))


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
    redaction.register_secrets(["review"])

    (after,) = records([entry], encoder=encoder)

    assert (before["chain"], after["chain"]) == ("review", "***")
