"""One peer: ids, batches, noise. The exact replies are those of interop §3 and appendix C."""

from __future__ import annotations

import json
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support import raw_json
from support.recording_connection import Desk

from conductor.jsonrpc.in_flight import InFlightRequest
from conductor.limits import Limits

PARSE = {"code": -32700, "message": "Parse error"}
INVALID = {"jsonrpc": "2.0", "id": None, "error": {"code": -32600, "message": "Invalid request"}}


def client(**options):
    return Desk(reports_malformed=True, **options)


def component(**options):
    return Desk(reports_malformed=False, **options)


def without_data(reply):
    reply["error"].pop("data", None)
    return reply


def send(desk, method="m"):
    """Open a call to the peer, as a side does; returns its id."""
    call = InFlightRequest(method, source=None)
    return desk.connection.open(call)


# -- towards a client --------------------------------------------------------------------------


@pytest.mark.parametrize("line", [b"{oops", b"\x00", b'"\xff"', b"NaN", b"nothing"])
def test_a_client_is_told_that_a_line_is_no_json_and_which(line):
    desk = client()

    desk.feed(line)

    (reply,) = desk.replies()
    shown = line.decode(errors="backslashreplace")
    error = PARSE | {"data": {"line": shown}}
    assert reply == {"jsonrpc": "2.0", "id": None, "error": error}
    assert (desk.events, desk.connection.skipped_lines) == ([], 1)


@pytest.mark.parametrize(
    "line",
    [
        b'{"jsonrpc":"2.0","id":5,"method":"x","params":7}',
        b'{"id":1,"method":"x"}',
        b"7",
        b"null",
        b'"text"',
        b"[]",
        b"{}",
        b'{"jsonrpc":"2.0","id":1.5,"method":"x"}',
        b'{"jsonrpc":"2.0","id":9223372036854775808,"method":"x"}',
        b'{"jsonrpc":"2.0","id":true,"method":"x"}',
        b'{"jsonrpc":"2.0","id":{},"method":"x"}',
        b'{"jsonrpc":"2.0","id":1,"method":"x","result":{}}',
        b'{"jsonrpc":"2.0","id":1,"method":["x"]}',
    ],
)
def test_a_client_is_told_that_a_line_is_no_json_rpc(line):
    desk = client()

    desk.feed(line)

    assert desk.replies() == [INVALID]
    assert desk.events == []


@pytest.mark.parametrize(
    "line",
    [
        b'{"jsonrpc":"2.0","id":1,"result":1,"error":{"code":1,"message":"x"}}',
        b'{"jsonrpc":"2.0","id":1,"error":{"message":"x"}}',
        b'{"jsonrpc":"2.0","error":{"code":1,"message":"x"}}',
        b'{"jsonrpc":"2.0","id":99,"result":1}',
        b'{"jsonrpc":"2.0","id":null,"result":1}',
        b'{"jsonrpc":"2.0","id":99,"result":{"cut',
    ],
)
def test_an_answer_is_never_answered(line):
    desk = client()

    desk.feed(line)

    assert desk.replies() == []
    assert len(desk.malformed) == 1


def test_a_very_long_line_that_is_no_json_is_quoted_in_part():
    desk = client()

    desk.feed(b"x" * 100_000)

    (reply,) = desk.replies()
    assert len(reply["error"]["data"]["line"]) == 1000


@pytest.mark.parametrize(
    ("line", "id"),
    [
        (b'{"jsonrpc":"2.0","id":7,"method":"m","params":{"a":"%s"}}', 7),
        (b'{"jsonrpc":"2.0","method":"m","params":{"a":"%s"},"id":"seven"}', "seven"),
        (b'{"jsonrpc":"2.0","method":"m","params":{"a":"%s"}}', None),
        (b"%s", None),
        (b'{"jsonrpc":"2.0","id":"\\ud800","method":"m","params":{"a":"%s"}}', None),
        (b'{"jsonrpc":"2.0","method":"m","params":{"a":"%s"},"id":"\\x"}', None),
    ],
)
@pytest.mark.parametrize("chunk", [10, 10_000])
def test_a_message_over_the_limit_is_refused_and_the_connection_lives(line, id, chunk):
    desk = client(limits=Limits(max_message_bytes=100))
    data = line % (b"x" * 5000) + b'\n{"jsonrpc":"2.0","id":8,"method":"next"}\n'

    for start in range(0, len(data), chunk):
        desk.connection.feed(data[start : start + chunk])

    (reply,) = desk.replies()
    assert (reply["id"], reply["error"]["code"]) == (id, -32600)
    assert "over the limit of 100 bytes" in reply["error"]["message"]
    assert desk.events == [("request", 8, "next", None)]


# -- towards a component -----------------------------------------------------------------------


@pytest.mark.parametrize(
    "line", [b"{oops", b"7", b"[]", b"Starting up...", b'{"id":1,"method":"x"}', b"\x1b[0m"]
)
def test_noise_of_a_component_is_counted_and_never_answered(line):
    desk = component()

    desk.feed(line, b'{"jsonrpc":"2.0","method":"n"}')

    assert desk.replies() == []
    assert desk.connection.skipped_lines == 1
    assert len(desk.malformed) == 1
    assert desk.events == [("notification", "n", None)]


@pytest.mark.parametrize(
    "prefix", [b"\x1b[32m", b"\x1b[?25l\x1b[0;1m", b"\xef\xbb\xbf", b"\x1b[0m "]
)
def test_a_message_behind_terminal_escapes_is_taken_and_the_noise_counted(prefix):
    desk = component()

    desk.feed(prefix + b'{"jsonrpc":"2.0","id":1,"method":"n"}')

    assert desk.events == [("request", 1, "n", None)]
    assert desk.connection.skipped_lines == 1


def test_noise_behind_terminal_escapes_is_one_line_of_noise():
    desk = component()

    desk.feed(b"\x1b[32mserver started\x1b[0m")

    assert (desk.connection.skipped_lines, len(desk.malformed), desk.replies()) == (1, 1, [])


def test_a_batch_behind_terminal_escapes_is_taken():
    desk = component()

    desk.feed(b'\x1b[0m[{"jsonrpc":"2.0","method":"n"}]')

    assert desk.events == [("notification", "n", None)]


@pytest.mark.parametrize(
    "answer",
    [
        b'{"jsonrpc":"2.0","id":1,"result":1,"error":{"code":1,"message":"x"}}',
        b'{"jsonrpc":"2.0","id":1,"error":{"message":"no code"}}',
        b'{"jsonrpc":"2.0","id":1,"error":"text"}',
        b'{"jsonrpc":"1.0","id":1,"result":1}',
        b'{"id":1,"result":1}',
        b'{"jsonrpc":"2.0","id":1,"result":{"cut',
        b'{"jsonrpc":"2.0","id":1,"result":"\xff"}',
        b'\x1b[0m{"jsonrpc":"2.0","id":1,"result":NaN}',
        b'[{"jsonrpc":"2.0","id":1,"error":7}]',
        b'{"jsonrpc":"2.0","id":1}',
        b'{"jsonrpc":"2.0","id":1,"foo":"\\ud800"}',
        b'{"jsonrpc":"2.0","id":1,"result":%b}' % raw_json.nested(raw_json.TOO_DEEP),
    ],
)
def test_a_malformed_answer_settles_the_request_that_it_names(answer):
    desk = component()
    assert send(desk, "asked") == 1

    desk.feed(answer)

    assert desk.events == [("malformed answer", "asked")]
    assert (desk.connection.sent, desk.replies()) == ({}, [])

    desk.feed(b'{"jsonrpc":"2.0","id":1,"result":"late"}')
    assert len(desk.events) == 1


@pytest.mark.parametrize(
    "answer", [b'{"jsonrpc":"2.0","id":1,"result":"%s"}', b'{"jsonrpc":"2.0","result":"%s","id":1}']
)
def test_an_answer_over_the_limit_settles_its_request(answer):
    desk = component(limits=Limits(max_message_bytes=100))
    send(desk)

    desk.feed(answer % (b"x" * 5000))

    assert desk.events == [("malformed answer", "m")]
    assert "over the limit" in desk.malformed[0].reason
    assert desk.replies() == []


def test_a_request_of_a_component_over_the_limit_is_answered_too():
    desk = component(limits=Limits(max_message_bytes=100))

    desk.feed(b'{"jsonrpc":"2.0","id":"big","method":"m","params":["%s"]}' % (b"x" * 500))

    (reply,) = desk.replies()
    assert (reply["id"], reply["error"]["code"]) == ("big", -32600)


def test_an_error_without_an_id_is_survived():
    desk = component()
    send(desk)

    desk.feed(b'{"jsonrpc":"2.0","error":{"code":-32601,"message":"no such notification"}}')

    assert desk.events == []
    assert list(desk.connection.sent) == [1]


# -- ids ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("id", [0, 1, -5, "", "1", "uuid", None, 2**63 - 1])
def test_a_request_is_answered_with_its_id_and_its_type(id):
    desk = client()
    desk.feed(json.dumps({"jsonrpc": "2.0", "id": id, "method": "m"}).encode())

    desk.connection.respond(desk.calls[0], b"{}", None)

    assert desk.replies() == [{"jsonrpc": "2.0", "id": id, "result": {}}]
    assert desk.connection.received == {}


def test_a_second_answer_is_ignored():
    desk = client()
    desk.feed(b'{"jsonrpc":"2.0","id":1,"method":"m"}')

    desk.connection.respond(desk.calls[0], b"1", None)
    desk.connection.respond(desk.calls[0], None, b"{}")

    assert desk.replies() == [{"jsonrpc": "2.0", "id": 1, "result": 1}]


def test_equal_ids_in_flight_are_answered_each():
    desk = client()
    desk.feed(*[b'{"jsonrpc":"2.0","id":1,"method":"m"}'] * 2)
    old, new = desk.calls

    assert desk.connection.received == {1: new}
    desk.connection.respond(old, b'"old"', None)
    assert desk.connection.received == {1: new}
    desk.connection.respond(new, b'"new"', None)

    assert [reply["result"] for reply in desk.replies()] == ["old", "new"]


def test_every_request_that_is_not_answered_is_known():
    desk = client()
    desk.feed(*[b'{"jsonrpc":"2.0","id":1,"method":"m"}'] * 3)
    first, second, third = desk.calls
    assert set(desk.connection.unanswered()) == {first, second, third}

    for call in (third, first):
        desk.connection.respond(call, b"1", None)

    assert desk.connection.unanswered() == [second]


def test_our_requests_have_ids_of_their_own():
    desk = component()

    assert [send(desk), send(desk), send(desk)] == [1, 2, 3]


def test_an_answer_finds_its_call_and_only_once():
    desk = component()
    send(desk, "first")
    send(desk, "second")

    desk.feed(
        b'{"jsonrpc":"2.0","id":2,"result":{"a":1e400}}',
        b'{"jsonrpc":"2.0","id":2,"result":{}}',
        b'{"jsonrpc":"2.0","id":"1","result":"a string is another id"}',
        b'{"jsonrpc":"2.0","id":1,"error":{"code":-1,"message":"no"}}',
    )

    assert desk.events == [
        ("answer", "second", b'{"a":1e400}', None),
        ("answer", "first", None, b'{"code":-1,"message":"no"}'),
    ]
    assert len(desk.malformed) == 2


# -- batches -----------------------------------------------------------------------------------


def test_a_batch_of_scalars_is_answered_slot_by_slot():
    desk = client()

    desk.feed(b"[1,2]")

    assert desk.replies() == [[INVALID, INVALID]]


def test_a_batch_is_answered_as_one_array_in_the_order_of_its_members():
    desk = client()
    desk.feed(
        b'[{"jsonrpc":"2.0","id":1,"method":"ok"},{"jsonrpc":"2.0","method":"n"},{"bad":1},'
        b'{"jsonrpc":"2.0","id":"b","method":"nope"}]'
    )
    first, second = desk.calls

    desk.connection.respond(second, None, b'{"code":-32601,"message":"Method not found"}')
    assert desk.replies() == []
    desk.connection.respond(first, b"{}", None)

    assert desk.replies() == [
        [
            {"jsonrpc": "2.0", "id": 1, "result": {}},
            INVALID,
            {"jsonrpc": "2.0", "id": "b", "error": {"code": -32601, "message": "Method not found"}},
        ]
    ]
    assert [event[0] for event in desk.events] == ["request", "notification", "request"]


def test_a_batch_that_is_answered_while_it_is_read_is_answered_once():
    desk = client()
    desk.on_request = lambda call, method, params: desk.connection.respond(call, b"1", None)

    desk.feed(b'[{"jsonrpc":"2.0","id":1,"method":"a"},{"jsonrpc":"2.0","id":1,"method":"b"}]')

    answer = {"jsonrpc": "2.0", "id": 1, "result": 1}
    assert desk.replies() == [[answer, answer]]


@pytest.mark.parametrize(
    "line",
    [
        b'[{"jsonrpc":"2.0","method":"n"}]',
        b'[{"jsonrpc":"2.0","id":9,"result":1}]',
        b'[{"jsonrpc":"2.0","id":9,"result":1,"error":1}]',
    ],
)
def test_a_batch_that_asks_nothing_is_not_answered(line):
    desk = client()

    desk.feed(line)

    assert desk.replies() == []


def test_an_unfinished_batch_holds_nothing_else_up():
    desk = client()
    desk.feed(b'[{"jsonrpc":"2.0","id":1,"method":"a"}]', b'{"jsonrpc":"2.0","id":2,"method":"b"}')

    desk.connection.respond(desk.calls[1], b"2", None)

    assert desk.replies() == [{"jsonrpc": "2.0", "id": 2, "result": 2}]


def test_the_answers_in_a_batch_are_matched_one_by_one():
    desk = component()
    send(desk, "first")
    send(desk, "second")

    desk.feed(b'[{"jsonrpc":"2.0","id":2,"result":2},{"jsonrpc":"2.0","id":1,"result":1}]')

    assert [event[1:3] for event in desk.events] == [("second", b"2"), ("first", b"1")]
    assert desk.replies() == []


# -- writing -----------------------------------------------------------------------------------


def test_a_connection_is_marked_once_until_it_is_flushed():
    desk = client()
    desk.connection.write((b"a\n",))
    desk.connection.write((b"b\n",))
    assert desk.flusher.dirty == [desk.connection]

    desk.flusher.flush()

    assert desk.transport.written == b"a\nb\n"


def test_the_stream_ends_when_everything_is_written():
    desk = client()
    desk.transport.room = 1
    desk.connection.write((b"abc\n",))

    desk.connection.close_writing()
    assert not desk.transport.writing_closed
    desk.transport.room = 100
    desk.connection.flush()

    assert (desk.transport.written, desk.transport.writing_closed) == (b"abc\n", True)


def test_what_nobody_reads_any_more_is_dropped():
    desk = client()
    desk.transport.broken = True
    desk.connection.write((b"abc\n",))

    desk.connection.flush()
    desk.connection.write((b"def\n",))

    assert (desk.connection.closed, desk.connection.write_buffer.size) == (True, 0)
    assert not desk.connection.write_buffer


# -- any split ---------------------------------------------------------------------------------

_lines = st.sampled_from(
    [
        b'{"jsonrpc":"2.0","method":"session/update","params":{"a":1}}',
        b'{"jsonrpc":"2.0","method":"session/update","params":{"a":[2]}}',
        b'{"jsonrpc":"2.0","method":"session/update","params":[3]}',
        b'{"jsonrpc":"2.0","method":"session/update","params":4}',
        b'{"jsonrpc":"2.0","method":"session/update"}',
        b'{"jsonrpc":"2.0","method":"session/update","params":null}',
        b'{"jsonrpc":"2.0","id":null,"method":"session/update","params":{}}',
        b'{"jsonrpc":"2.0","method":"other","params":{"b":"\xc3\xa9"}}',
        b'{"jsonrpc":"2.0","method":"other","params":{"b":"\\ud800"}}',
        b'{"jsonrpc":"2.0","method":"other","params":{"b":"\xff"}}',
        b'{"jsonrpc":"2.0","method":"other","params":{},"result":1}',
        b'{"jsonrpc":"2.0","id":1,"method":"r","params":{}}',
        b'[{"jsonrpc":"2.0","id":1,"method":"r"},{"jsonrpc":"2.0","method":"n"},3]',
        b'{"jsonrpc":"2.0","id":1,"result":{}}',
        b'{"jsonrpc":"2.0","id":2,"error":{"code":1,"message":"x"}}',
        b'{"jsonrpc":"2.0","id":2,"error":{"cut',
        b'{"jsonrpc":"2.0","id":3,"result":"%s"}' % (b"y" * 5000),
        b'{"jsonrpc":"2.0","id":"big","method":"m","params":{"z":"%s"}}' % (b"z" * 5000),
        b"",
        b"\r",
        b"noise",
        b"[]",
        b'\x1b[0m{"jsonrpc":"2.0","method":"n"}',
    ]
)


@st.composite
def _streams(draw):
    data = b"\n".join(draw(st.lists(_lines, max_size=12))) + draw(st.sampled_from([b"", b"\n"]))
    cuts = sorted(draw(st.lists(st.integers(0, len(data)), max_size=8)))
    edges = [0, *cuts, len(data)]
    return data, [data[start:end] for start, end in pairwise(edges)]


def _history(chunks, is_client):
    desk = Desk(reports_malformed=is_client, limits=Limits(max_message_bytes=1000))
    for _ in range(3):
        send(desk)
    for chunk in chunks:
        desk.connection.feed(chunk)
    desk.connection.end()
    return desk.events, desk.replies(), desk.malformed, desk.connection.skipped_lines


@given(_streams(), st.booleans())
def test_any_split_of_the_bytes_gives_the_same_messages(stream, is_client):
    data, chunks = stream

    one_by_one = _history(
        [line + b"\n" for line in data.split(b"\n")[:-1]] + [data.split(b"\n")[-1]], is_client
    )

    assert _history(chunks, is_client) == one_by_one
    assert _history([data], is_client) == one_by_one


@given(st.lists(raw_json.objects, min_size=2, max_size=5))
def test_a_run_of_notifications_keeps_every_byte_of_every_one(values):
    desk = component()

    desk.feed(*[b'{"jsonrpc":"2.0","method":"m","params":%s}' % v.encode() for v in values])

    assert desk.events == [("notification", "m", value.encode()) for value in values]


# -- limits ------------------------------------------------------------------------------------


def test_one_request_too_many_is_refused_and_room_is_made_by_answers():
    desk = client(limits=Limits(max_open_requests=2))
    desk.feed(*[b'{"jsonrpc":"2.0","id":%d,"method":"m"}' % id for id in (1, 2, 3)])

    (reply,) = desk.replies()
    assert reply["id"] == 3
    assert reply["error"]["code"] < 0
    assert [event[1] for event in desk.events] == [1, 2]

    desk.connection.respond(desk.calls[0], b"1", None)
    desk.feed(b'{"jsonrpc":"2.0","id":4,"method":"m"}')
    assert [event[1] for event in desk.events] == [1, 2, 4]


def test_equal_ids_count_as_open_requests_each():
    desk = client(limits=Limits(max_open_requests=2))

    desk.feed(*[b'{"jsonrpc":"2.0","id":1,"method":"m"}'] * 5)

    assert len(desk.events) == 2
    assert len(desk.replies()) == 3


@pytest.mark.parametrize("make", [client, component])
@pytest.mark.parametrize("blank", [b"", b"\r", b" \t", b" " * 100])
@pytest.mark.parametrize("count", [1, 5])
def test_blank_lines_are_ignored(make, blank, count):
    desk = make()

    desk.feed(*[blank] * count)
    desk.feed(*[blank, b'{"jsonrpc":"2.0","method":"n"}', blank] * count)
    desk.connection.feed(blank)
    desk.connection.end()

    assert desk.replies() == []
    assert desk.events == [("notification", "n", None)] * count
    assert (desk.connection.skipped_lines, desk.malformed) == (0, [])


def test_one_step_routes_a_bounded_number_of_lines_and_the_rest_keeps_its_order():
    desk = client()
    lines = b"".join(b'{"jsonrpc":"2.0","id":%d,"method":"m"}\n1\n' % n for n in range(2000))

    more, steps = desk.connection.feed_partial(lines), 1
    seen = [len(desk.events)]
    while more:
        more, steps = desk.connection.route_more(), steps + 1
        seen.append(len(desk.events))

    assert max(after - before for before, after in pairwise([0, *seen])) <= 256
    assert steps >= 4000 // 256
    assert [call.source_id for call in desk.calls] == list(range(2000))
    assert len(desk.replies()) == 2000


@pytest.mark.parametrize("before", [b"", b'{"jsonrpc":"2.0","method":"n"}\n'])
@pytest.mark.parametrize("member", [b'{"jsonrpc":"2.0","id":%d,"method":"m"}', b'{"id":%d}'])
def test_the_members_of_a_batch_are_routed_in_steps(before, member):
    desk = client()
    last = b'{"jsonrpc":"2.0","id":"last","method":"m"}\n'
    batch = b"[%b]\n" % b",".join(member % id for id in range(2000))

    more, steps = desk.connection.feed_partial(before + batch + last), 1
    while more:
        routed = len(desk.calls) + desk.connection.skipped_lines
        more, steps = desk.connection.route_more(), steps + 1
        assert len(desk.calls) + desk.connection.skipped_lines - routed <= 64
    for call in desk.calls:
        desk.connection.respond(call, b"{}", None)

    assert steps >= 2000 // 64
    assert [call.source_id for call in desk.calls][-1] == "last"
    assert [call.source_id for call in desk.calls][:-1] in ([], list(range(2000)))
    replies = desk.replies()
    assert [len(reply) for reply in replies if type(reply) is list] == [2000]
    assert len(replies) == 2


def test_the_rest_of_a_batch_is_routed_at_the_end_of_the_stream():
    desk = client()

    desk.connection.feed(b"[%b]" % b",".join([b'{"jsonrpc":"2.0","method":"n"}'] * 300))
    desk.connection.end()

    assert len(desk.events) == 300


def test_the_members_of_a_batch_over_the_limit_are_not_decoded(monkeypatch):
    desk = client(limits=Limits(max_batch=2))
    decoded = []
    monkeypatch.setattr("conductor.jsonrpc.codec._member", decoded.append)

    desk.feed(b"[" + b"1," * 1000 + b"1]")
    desk.feed(b"[" + b'{"result":1},' * 1000 + b"1]")

    assert len(decoded) <= 2
    assert [reply["error"]["code"] for reply in desk.replies()] == [-32600, -32600]


def test_a_batch_of_millions_is_refused_without_reading_all_of_it():
    desk = client()

    desk.feed(b"[" + b"1," * 3_000_000 + b"1]")

    (reply,) = desk.replies()
    assert reply["error"]["message"] == "a batch of over 100000 is over the limit of 10000"


def test_a_batch_over_the_limit_is_refused_whole():
    desk = client(limits=Limits(max_batch=2))

    desk.feed(b"[%s]" % b",".join([b'{"jsonrpc":"2.0","id":1,"method":"m"}'] * 3))

    assert desk.events == []
    (reply,) = desk.replies()
    assert (reply["id"], reply["error"]["code"]) == (None, -32600)


def test_the_answers_in_a_batch_over_the_limit_are_taken_all_the_same():
    desk = component(limits=Limits(max_batch=2))
    send(desk, "asked")

    notes = [b'{"jsonrpc":"2.0","method":"n"}'] * 2
    desk.feed(b"[%s]" % b",".join([*notes, b'{"jsonrpc":"2.0","id":1,"result":5}']))

    assert desk.events == [("answer", "asked", b"5", None)]


@pytest.mark.parametrize("make", [client, component])
@pytest.mark.parametrize("written", [b"1.0", b"1e0", b"10.0e-1"])
@pytest.mark.parametrize("text", [b'"x"', b'"\\ud83d"'])
def test_an_integral_number_is_an_id_however_it_is_written(make, written, text):
    desk = make()
    send(desk, "asked")

    desk.feed(b'{"jsonrpc":"2.0","id":%b,"result":{"a":%b}}' % (written, text))
    desk.feed(b'{"jsonrpc":"2.0","id":%b,"method":"m","params":{"a":%b}}' % (written, text))

    answer, request = desk.events
    assert answer == ("answer", "asked", b'{"a":%b}' % text, None)
    assert request[0] == "request"
    assert [call.source_id for call in desk.calls] == [1]


@pytest.mark.parametrize("written", [b"1.5", b"1e300", b"true", b"[1]"])
def test_what_is_no_integral_number_is_no_id(written):
    desk = component()
    send(desk, "asked")

    desk.feed(b'{"jsonrpc":"2.0","id":%b,"result":{}}' % written)

    assert desk.events == []
    assert desk.connection.skipped_lines == 1


@pytest.mark.parametrize("make", [client, component])
@pytest.mark.parametrize(
    "line",
    [
        b'{"jsonrpc":"2.0","id":7,"method":"m","params":%b}',
        b'{"jsonrpc":"2.0","method":"m","params":%b,"id":7}',
        b'{"params":%b,"jsonrpc":"2.0","method":"m","id":7}',
    ],
)
def test_a_request_that_is_nested_too_deeply_is_answered_with_its_id(make, line):
    desk = make()

    desk.feed(line % raw_json.nested(raw_json.TOO_DEEP))

    (reply,) = desk.replies()
    error = {"code": -32600, "message": "Invalid request: nested too deeply"}
    assert reply == {"jsonrpc": "2.0", "id": 7, "error": error}
    assert desk.events == []
