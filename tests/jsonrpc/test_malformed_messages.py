"""Malformed and oversized lines: a client gets an error, the line of a component is reported.

Replies are compared whole: clients rely on them.
"""

from __future__ import annotations

import pytest
from support import raw_json
from support.peers.port import Desk, client, component, send

from conductor.json_values import NestedTooDeeply
from conductor.limits import Limits

PARSE = {"code": -32700, "message": "Parse error"}
INVALID = {"jsonrpc": "2.0", "id": None, "error": {"code": -32600, "message": "Invalid request"}}


# -- from a client ---------------------------------------------------------------------------------


@pytest.mark.parametrize("line", [b"{oops", b"\x00", b'"\xff"', b"NaN", b"nothing"])
def test_a_client_gets_a_parse_error_that_quotes_the_line(line):
    desk = client()

    desk.feed(line)

    (reply,) = desk.replies()
    shown = line.decode(errors="backslashreplace")
    error = PARSE | {"data": {"line": shown}}
    assert reply == {"jsonrpc": "2.0", "id": None, "error": error}
    assert (desk.heard, len(desk.malformed)) == ([], 1)


def test_terminal_sequences_of_a_client_are_not_removed():
    desk = client()

    desk.feed(b'\x1b[0m{"jsonrpc":"2.0","id":1,"method":"m"}')

    (reply,) = desk.replies()
    assert (reply["id"], reply["error"]["code"]) == (None, -32700)
    assert desk.heard == []


@pytest.mark.parametrize(
    "line",
    [
        b'{"jsonrpc":"2.0","id":5,"method":"x","params":7}',
        b"[]",
        b'{"jsonrpc":"2.0","id":1.5,"method":"x"}',
        b"[%b1]" % (b"1," * 3_000_000),
        b'{"jsonrpc":"2.0","id":1,"method":"x","result":{}}',
    ],
)
def test_a_client_gets_an_error_for_a_line_that_is_not_json_rpc(line):
    desk = client()

    desk.feed(line)

    assert desk.replies() == [INVALID]
    assert desk.heard == []


@pytest.mark.parametrize(
    "line",
    [
        b'{"jsonrpc":"2.0","id":1,"result":1,"error":{"code":1,"message":"x"}}',
        b'{"jsonrpc":"2.0","id":1,"error":{"message":"x"}}',
        b'{"jsonrpc":"2.0","error":{"code":1,"message":"x"}}',
        b'{"jsonrpc":"2.0","id":99,"result":1}',
        b'{"jsonrpc":"2.0","id":null,"result":1}',
        b'{"jsonrpc":"2.0","id":99,"result":{"cut',
        b'{"jsonrpc":"2.0","id":1.5,"result":1}',
    ],
)
def test_a_malformed_response_is_never_answered(line):
    desk = client()

    desk.feed(line)

    assert desk.replies() == []
    assert len(desk.malformed) == 1


def test_a_parse_error_quotes_the_beginning_of_a_long_line():
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
def test_a_message_over_the_limit_is_refused_and_the_connection_stays_open(line, id, chunk):
    desk = client(limits=Limits(max_message_bytes=100))
    data = line % (b"x" * 5000) + b'\n{"jsonrpc":"2.0","id":8,"method":"next"}\n'

    for start in range(0, len(data), chunk):
        desk.connection.feed(data[start : start + chunk])

    (reply,) = desk.replies()
    assert (reply["id"], reply["error"]["code"]) == (id, -32600)
    assert "over the limit of 100 bytes" in reply["error"]["message"]
    assert desk.heard == [("request", 8, "next", None)]


# -- from a component ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "line", [b"{oops", b"7", b"[]", b"Starting up...", b'{"id":1,"method":"x"}', b"\x1b[0m"]
)
def test_malformed_lines_of_a_component_are_reported_and_never_answered(line):
    desk = component()

    desk.feed(line, b'{"jsonrpc":"2.0","method":"n"}')

    assert desk.replies() == []
    assert len(desk.malformed) == 1
    assert desk.heard == [("notification", "n", None)]


@pytest.mark.parametrize(
    "prefix", [b"\x1b[32m", b"\x1b[?25l\x1b[0;1m", b"\xef\xbb\xbf", b"\x1b[0m "]
)
def test_a_message_after_terminal_escapes_is_routed(prefix):
    desk = component()

    desk.feed(prefix + b'{"jsonrpc":"2.0","id":1,"method":"n"}')

    assert (desk.heard, desk.malformed) == ([("request", 1, "n", None)], [])


@pytest.mark.parametrize(
    "answer",
    [
        b'{"jsonrpc":"2.0","id":1,"result":1,"error":{"code":1,"message":"x"}}',
        b'{"jsonrpc":"2.0","id":1,"error":{"message":"no code"}}',
        b'{"id":1,"result":1}',
        b'{"jsonrpc":"2.0","id":1,"result":{"cut',
        b'{"jsonrpc":"2.0","id":1,"result":"\xff"}',
        b'\x1b[0m{"jsonrpc":"2.0","id":1,"result":NaN}',
        b'[{"jsonrpc":"2.0","id":1,"error":7}]',
        b'{"jsonrpc":"2.0","id":1}',
        b'{"jsonrpc":"2.0","id":1.0,"result":1}',
        b'{"jsonrpc":"2.0","id":1,"foo":"\\ud800"}',
        b'{"jsonrpc":"2.0","id":1,"result":%b}' % raw_json.nested(raw_json.TOO_DEEP),
    ],
)
def test_a_malformed_response_settles_the_request_with_its_id(answer):
    desk = component()
    assert send(desk, "asked") == 1

    desk.feed(answer)

    assert desk.heard == [("malformed answer", "asked")]
    assert (desk.connection.sent, desk.replies()) == ({}, [])

    desk.feed(b'{"jsonrpc":"2.0","id":1,"result":"late"}')
    assert len(desk.heard) == 1


@pytest.mark.parametrize(
    "answer", [b'{"jsonrpc":"2.0","id":1,"result":"%s"}', b'{"jsonrpc":"2.0","result":"%s","id":1}']
)
def test_a_response_over_the_limit_settles_its_request(answer):
    desk = component(limits=Limits(max_message_bytes=100))
    send(desk)

    desk.feed(answer % (b"x" * 5000))

    assert desk.heard == [("malformed answer", "m")]
    assert "over the limit" in desk.malformed[0].reason
    assert desk.replies() == []


def test_a_request_of_a_component_over_the_limit_is_answered_too():
    desk = component(limits=Limits(max_message_bytes=100))

    desk.feed(b'{"jsonrpc":"2.0","id":"big","method":"m","params":["%s"]}' % (b"x" * 500))

    (reply,) = desk.replies()
    assert (reply["id"], reply["error"]["code"]) == ("big", -32600)


# -- nested too deeply -----------------------------------------------------------------------------


@pytest.mark.parametrize("make", [client, component])
@pytest.mark.parametrize(
    "line",
    [
        b'{"jsonrpc":"2.0","id":7,"method":"m","params":%b}',
        b'{"jsonrpc":"2.0","method":"m","params":%b,"id":7}',
        b'{"params":%b,"jsonrpc":"2.0","method":"m","id":7}',
    ],
)
def test_a_request_nested_too_deeply_is_answered_with_its_id(make, line):
    desk = make()

    desk.feed(line % raw_json.nested(raw_json.TOO_DEEP))

    (reply,) = desk.replies()
    error = {"code": -32600, "message": "Invalid request: nested too deeply"}
    assert reply == {"jsonrpc": "2.0", "id": 7, "error": error}
    assert desk.heard == []


@pytest.mark.parametrize("reason", [NestedTooDeeply, RecursionError])
def test_a_value_that_the_receiver_cannot_decode_is_the_error_of_its_sender(reason):
    class Decodes(Desk):
        def _fail(self, *args):
            raise reason

        on_request = on_notification = on_notifications = on_response = _fail

    desk = Decodes()
    send(desk, "asked")

    desk.feed(b'{"jsonrpc":"2.0","id":7,"method":"m","params":{}}')
    desk.feed(b'{"jsonrpc":"2.0","method":"m","params":{"a":1}}')
    desk.feed(*[b'{"jsonrpc":"2.0","method":"m","params":{"a":1}}'] * 3)
    desk.feed(b'{"jsonrpc":"2.0","id":1,"result":{}}')

    (reply,) = desk.replies()
    error = {"code": -32600, "message": "nested more than 128 deep"}
    assert reply == {"jsonrpc": "2.0", "id": 7, "error": error}
    assert desk.heard == [("malformed answer", "asked")]
    assert [each.reason for each in desk.malformed] == [error["message"]] * 4
