"""Batches: one array of responses, routed in steps, refused whole over the limit."""

from __future__ import annotations

import pytest
from support.peers.port import client, component, send

from conductor.limits import Limits

INVALID = {"jsonrpc": "2.0", "id": None, "error": {"code": -32600, "message": "Invalid request"}}


def test_a_batch_is_answered_as_one_array_in_the_order_of_its_members():
    desk = client()
    desk.feed(
        b'[{"jsonrpc":"2.0","id":1,"method":"ok"},{"jsonrpc":"2.0","method":"n"},{"bad":1},'
        b'{"jsonrpc":"2.0","id":"b","method":"nope"}]'
    )
    first, second = desk.asked

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
    assert [event[0] for event in desk.heard] == ["request", "notification", "request"]


@pytest.mark.parametrize(
    "line",
    [
        b'[{"jsonrpc":"2.0","method":"n"}]',
        b'[{"jsonrpc":"2.0","id":9,"result":1}]',
        b'[{"jsonrpc":"2.0","id":9,"result":1,"error":1}]',
    ],
)
def test_a_batch_without_requests_is_not_answered(line):
    desk = client()

    desk.feed(line)

    assert desk.replies() == []


def test_responses_in_a_batch_are_matched_one_by_one():
    desk = component()
    send(desk, "first")
    send(desk, "second")

    desk.feed(b'[{"jsonrpc":"2.0","id":2,"result":2},{"jsonrpc":"2.0","id":1,"result":1}]')

    assert [event[1:3] for event in desk.heard] == [("second", b"2"), ("first", b"1")]
    assert desk.replies() == []


@pytest.mark.parametrize("before", [b"", b'{"jsonrpc":"2.0","method":"n"}\n'])
@pytest.mark.parametrize("member", [b'{"jsonrpc":"2.0","id":%d,"method":"m"}', b'{"id":%d}'])
def test_the_members_of_a_batch_are_routed_in_steps(before, member):
    desk = client()
    last = b'{"jsonrpc":"2.0","id":"last","method":"m"}\n'
    batch = b"[%b]\n" % b",".join(member % id for id in range(2000))

    more, steps = desk.connection.feed_partial(before + batch + last), 1
    while more:
        routed = len(desk.asked) + len(desk.malformed)
        more, steps = desk.connection.route_more(), steps + 1
        assert len(desk.asked) + len(desk.malformed) - routed <= 64
    for call in desk.asked:
        desk.connection.respond(call, b"{}", None)

    assert steps >= 2000 // 64
    assert [call.source_id for call in desk.asked][-1] == "last"
    assert [call.source_id for call in desk.asked][:-1] in ([], list(range(2000)))
    replies = desk.replies()
    assert [len(reply) for reply in replies if type(reply) is list] == [2000]
    assert len(replies) == 2


def test_a_batch_over_the_limit_is_refused_as_a_whole():
    desk = client(limits=Limits(max_batch=2))

    desk.feed(b"[%s]" % b",".join([b'{"jsonrpc":"2.0","id":1,"method":"m"}'] * 3))

    assert desk.heard == []
    (reply,) = desk.replies()
    assert (reply["id"], reply["error"]["code"]) == (None, -32600)


def test_responses_in_a_batch_over_the_limit_are_matched():
    desk = component(limits=Limits(max_batch=2))
    ids = [send(desk, "asked") for _ in range(2)]

    note = b'{"jsonrpc":"2.0","method":"n"}'
    responses = [b'{"jsonrpc":"2.0","id":%d,"result":5}' % id for id in ids]
    desk.feed(b"[%s]" % b",".join([note, *responses]))

    assert desk.heard == [("answer", "asked", b"5", None)] * 2
