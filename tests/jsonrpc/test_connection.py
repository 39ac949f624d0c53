"""A JSON-RPC peer: ids, responses, writing, open requests, and bytes split anywhere."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support import raw_json
from support.peers.port import Desk, client, component, send
from support.raw_json import dumps

from conductor.limits import Limits

# -- ids -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("id", [0, 1, -5, "", "1", "uuid", None, 2**63 - 1])
def test_a_request_is_answered_with_its_id_and_its_type(id):
    desk = client()
    desk.feed(dumps({"jsonrpc": "2.0", "id": id, "method": "m"}))

    desk.connection.respond(desk.asked[0], b"{}", None)

    assert desk.replies() == [{"jsonrpc": "2.0", "id": id, "result": {}}]
    assert desk.connection.received == {}


def test_a_second_answer_is_ignored():
    desk = client()
    desk.feed(b'{"jsonrpc":"2.0","id":1,"method":"m"}')

    desk.connection.respond(desk.asked[0], b"1", None)
    desk.connection.respond(desk.asked[0], None, b"{}")

    assert desk.replies() == [{"jsonrpc": "2.0", "id": 1, "result": 1}]


def test_equal_ids_in_flight_are_answered_each():
    desk = client()
    desk.feed(*[b'{"jsonrpc":"2.0","id":1,"method":"m"}'] * 2)
    old, new = desk.asked

    assert desk.connection.received == {1: new}
    desk.connection.respond(old, b'"old"', None)
    assert desk.connection.received == {1: new}
    desk.connection.respond(new, b'"new"', None)

    assert [reply["result"] for reply in desk.replies()] == ["old", "new"]


def test_every_request_that_is_not_answered_is_known():
    desk = client()
    desk.feed(*[b'{"jsonrpc":"2.0","id":1,"method":"m"}'] * 3)
    first, second, third = desk.asked
    assert set(desk.connection.unanswered()) == {first, second, third}

    for call in (third, first):
        desk.connection.respond(call, b"1", None)

    assert desk.connection.unanswered() == [second]


def test_requests_to_a_component_are_numbered_from_one():
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

    assert desk.heard == [
        ("answer", "second", b'{"a":1e400}', None),
        ("answer", "first", None, b'{"code":-1,"message":"no"}'),
    ]
    assert len(desk.malformed) == 2


# -- writing ---------------------------------------------------------------------------------------


def test_a_connection_is_marked_once_until_it_is_flushed():
    desk = client()
    desk.connection.write((b"a\n",))
    desk.connection.write((b"b\n",))
    assert len(desk.flusher.due) == 1

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


def test_the_backlog_of_a_closed_transport_is_dropped():
    desk = client()
    desk.transport.broken = True
    desk.connection.write((b"abc\n",))

    desk.connection.flush()
    desk.connection.write((b"def\n",))

    assert (desk.connection.closed, desk.connection.write_buffer.size) == (True, 0)
    assert not desk.connection.write_buffer


# -- open requests ---------------------------------------------------------------------------------


def test_one_request_too_many_is_refused_and_room_is_made_by_answers():
    desk = client(limits=Limits(max_open_requests=2))
    desk.feed(*[b'{"jsonrpc":"2.0","id":%d,"method":"m"}' % id for id in (1, 2, 3)])

    (reply,) = desk.replies()
    assert reply["id"] == 3
    assert reply["error"]["code"] < 0
    assert [event[1] for event in desk.heard] == [1, 2]

    desk.connection.respond(desk.asked[0], b"1", None)
    desk.feed(b'{"jsonrpc":"2.0","id":4,"method":"m"}')
    assert [event[1] for event in desk.heard] == [1, 2, 4]


def test_equal_ids_count_as_open_requests_each():
    desk = client(limits=Limits(max_open_requests=2))

    desk.feed(*[b'{"jsonrpc":"2.0","id":1,"method":"m"}'] * 5)

    assert len(desk.heard) == 2
    assert len(desk.replies()) == 3


# -- any split -------------------------------------------------------------------------------------


def test_one_step_routes_a_bounded_number_of_lines_and_the_rest_keeps_its_order():
    desk = client()
    lines = b"".join(b'{"jsonrpc":"2.0","id":%d,"method":"m"}\n1\n' % n for n in range(2000))

    more, steps = desk.connection.feed_partial(lines), 1
    seen = [len(desk.heard)]
    while more:
        more, steps = desk.connection.route_more(), steps + 1
        seen.append(len(desk.heard))

    assert max(after - before for before, after in pairwise([0, *seen])) <= 256
    assert steps >= 4000 // 256
    assert [call.source_id for call in desk.asked] == list(range(2000))
    assert len(desk.replies()) == 2000


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
    assert desk.heard == [("notification", "n", None)] * count
    assert desk.malformed == []


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
    desk = Desk(answers_malformed=is_client, limits=Limits(max_message_bytes=1000))
    for _ in range(3):
        send(desk)
    for chunk in chunks:
        desk.connection.feed(chunk)
    desk.connection.end()
    return desk.heard, desk.replies(), desk.malformed


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

    assert desk.heard == [("notification", "m", value.encode()) for value in values]
