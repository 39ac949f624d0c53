"""Cases of the Autobahn test suite, which they are named after, sent to `serve` as raw frames.

The suite's peers echo; the peers here are agents: a message that arrived is answered by an error
with its id.
"""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
from support.raw_json import dumps

from .frames import (
    BINARY,
    CLOSE,
    CONTINUATION,
    PING,
    PONG,
    TEXT,
    Raw,
    close,
    fragments,
    frame,
)
from .programs import served

LIMIT = 100_000
GREEK = "κόσμε"


@pytest.fixture(scope="module")
def address(tmp_path_factory) -> Iterator[str]:
    chain = {"limits": {"max_message_bytes": LIMIT}}
    with served(tmp_path_factory.mktemp("chain"), more=chain) as address:
        yield address


@pytest.fixture
def raw(address) -> Iterator[Raw]:
    raw = Raw.open(address)
    yield raw
    raw.end()


def request(id: str) -> bytes:
    """A message, of which the agent's answer has the id."""
    message = {"jsonrpc": "2.0", "id": id, "method": "_no/such"}
    return dumps(message)


def split(data: bytes, size: int) -> list[bytes]:
    return [data[start : start + size] for start in range(0, len(data), size)]


PING_5 = frame(PING, b"Hello")
MESSAGES = {
    "1.1.3 126 bytes": frame(TEXT, request(GREEK).ljust(126)),
    "1.1.7 65536 bytes": frame(TEXT, request(GREEK).ljust(65536)),
    "1.2.1 binary is ignored (RFD)": frame(BINARY, b"\x00\xff") + frame(TEXT, request(GREEK)),
    "2.8 a pong nobody asked for": frame(PONG, b"unsolicited") + frame(TEXT, request(GREEK)),
    "5.3 two fragments": fragments(*split(request(GREEK), 30)),
    "6.1.2 empty fragments": fragments(b"", request(GREEK), b""),
    "6.2.3 a fragment per byte": fragments(*split(request(GREEK), 1)),
    "9.3.1 fragments of 64 bytes": fragments(*split(request(GREEK).ljust(60000), 64)),
}


@pytest.mark.parametrize("case", MESSAGES)
@pytest.mark.parametrize("chop", [0, 1], ids=["", "chopped"])
def test_a_message_arrives_whole(raw, case, chop):
    data = MESSAGES[case]

    raw.send(data, chop=997 if chop and len(data) > 1000 else chop)
    opcode, payload = raw.receive()

    assert opcode == TEXT
    assert json.loads(payload)["id"] == GREEK


@pytest.mark.parametrize("chop", [0, 1], ids=["", "2.6 chopped"])
def test_pings_are_answered_in_order(raw, chop):
    payloads = [b"", b"Hello, world!", b"\x00\xff\xfe", b"\xfe" * 125]
    raw.send(b"".join([frame(PING, payload) for payload in payloads]), chop=chop)

    assert [raw.receive() for _ in payloads] == [(PONG, payload) for payload in payloads]


@pytest.mark.parametrize("chop", [0, 1], ids=["5.6", "5.8 chopped"])
def test_a_ping_between_fragments_is_answered_before_the_message(raw, chop):
    raw.send(fragments(*split(request(GREEK), 20), between=PING_5), chop=chop)

    answers = [raw.receive() for _ in split(request(GREEK), 20)]
    assert answers[:-1] == [(PONG, b"Hello")] * (len(answers) - 1)
    assert json.loads(answers[-1][1])["id"] == GREEK


LATE = frame(TEXT, request("late"))
BROKEN = {
    "2.5 a ping of 126 bytes": (1002, frame(PING, b"\xfe" * 126)),
    "3.1 reserved bits": (1002, frame(TEXT, b"x", rsv=1)),
    "3.6 on a close": (1002, frame(CLOSE, b"\x03\xe8", rsv=6)),
    "4.1.1 a reserved opcode": (1002, frame(3)),
    "4.2.1 a reserved control opcode": (1002, frame(11, b"x")),
    "5.1 a ping in fragments": (1002, frame(PING, b"x", fin=False) + frame(CONTINUATION, b"y")),
    "5.9 a continuation of nothing": (1002, frame(CONTINUATION, b"x")),
    "5.15 one after a message": (
        1002,
        fragments(*split(request("x"), 30)) + frame(CONTINUATION, b"x"),
    ),
    "5.18 a text within a text": (1002, frame(TEXT, b"x", fin=False) + LATE),
    "6.3.1 not UTF-8": (1007, frame(TEXT, b"\xce\xba\xed\xa0\x80edited")),
    "6.4.1 not UTF-8, before the end": (1007, frame(TEXT, b"\xf4\x90", fin=False)),
    "6.6.1 half of a character": (1007, frame(TEXT, b"\xce")),
    "7.3.2 a close of one byte": (1002, frame(CLOSE, b"\x03")),
    "7.3.6 a close of 126 bytes": (1002, close(1000, b"*" * 124)),
    "7.5.1 a reason that is not UTF-8": (1007, close(1000, b"\xce\xba\xed\xa0\x80")),
    "7.9.1 close code 0": (1002, close(0)),
    "7.9.3 close code 1005": (1002, close(1005)),
    "7.13.2 close code 65535": (1002, close(65535)),
    "RFC 6455 5.1 not masked": (1002, frame(TEXT, request("x"), masked=False)),
    "RFC 6455 5.2 a length of 64 bits, the first set": (1002, b"\x81\xff" + b"\xff" * 12),
}


@pytest.mark.parametrize("case", BROKEN)
def test_a_protocol_error_is_answered_with_a_close_code_and_disconnected(raw, case):
    code, data = BROKEN[case]

    raw.send(data)
    *before, (opcode, payload) = raw.receive_all()

    assert (opcode, int.from_bytes(payload[:2])) == (CLOSE, code)
    assert [json.loads(text)["id"] for _, text in before] in ([], ["x"])


def test_a_message_over_the_limit_is_answered_with_a_close_code_and_disconnected(raw):
    """Autobahn's 10.1.1 asks for the opposite: no limit is known to it."""
    raw.send(frame(TEXT, request("x").ljust(LIMIT + 10_000)))

    ((opcode, payload),) = raw.receive_all()
    assert (opcode, int.from_bytes(payload[:2])) == (CLOSE, 1009)


@pytest.mark.parametrize("code", [1000, 1001, 1011, 3000, 4999])
def test_a_close_is_answered_by_its_code(raw, code):
    """7.7.1 to 7.7.13."""
    raw.send(close(code))

    assert raw.receive_all() == [(CLOSE, code.to_bytes(2))]


CLOSES = {
    "7.3.1 without a code": (close(), b""),
    "7.3.4 with a reason": (close(1000, b"Hello World!"), b"\x03\xe8Hello World!"),
    "7.3.5 with a long one": (close(1000, b"*" * 123), b"\x03\xe8" + b"*" * 123),
    "7.1.2 twice": (close(1000) * 2, b"\x03\xe8"),
    "7.1.3 before a ping": (close(1000) + PING_5, b"\x03\xe8"),
    "7.1.4 before a message": (close(1000) + LATE, b"\x03\xe8"),
}


@pytest.mark.parametrize("case", CLOSES)
def test_after_a_close_nothing_is_answered(raw, case):
    data, answer = CLOSES[case]

    raw.send(data)

    assert raw.receive_all() == [(CLOSE, answer)]


def test_tcp_eof_without_a_close_frame_releases_the_connection(raw):
    raw.send(frame(TEXT, request("x")))
    raw.receive()
    raw.half_close()

    assert raw.receive() is None


def test_tcp_eof_within_a_frame_releases_the_connection(raw):
    raw.send(frame(TEXT, request("x"))[:10])
    raw.half_close()

    assert raw.receive() is None


def test_a_disconnect_during_a_refusal_is_not_logged(address):
    """Chromium does; the server of this module must have nothing to say about it."""
    for _ in range(20):
        Raw.ask(address, "Origin: http://evil.example").abort()
