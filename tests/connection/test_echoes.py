"""A line with a value that the proxy got from us means what it would mean to somebody who does not
know the value, whatever stands around it and however little of it was changed."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from msgspec import Raw
from support import raw_json

from conductor.connection.echoes import LARGE, Echoes
from conductor.connection.outbox import Outbox
from conductor.errors import RequestError
from conductor.frames import Frame, Malformed, decode
from conductor.messages import Message, notification_pieces
from conductor.routing.envelope import DIALECTS, unwrap, wrap_notification, wrap_request

TEXT = 'café \\u00e9 \\n \\"x\\" '.encode() * (LARGE // 20)
VALUE = b'{"sessionId":"s","update":{"n":1e400,"text":"%b"}}' % TEXT
LIST = b'[{"text":"%b"},12345678901234567890123]' % TEXT
STAND_IN = b'{"stand-in":0}'
HEAD = b'{"jsonrpc":"2.0","method":"session/update","params":'
ID = b'{"jsonrpc":"2.0","id":7,'
INNER = b'{"jsonrpc":"2.0","method":"proxy/successor","params":{"method":"session/update","params":'


def knowing(*values: bytes) -> Echoes:
    echoes = Echoes()
    for value in values:
        echoes.sent(notification_pieces("session/update", Raw(value)))
    return echoes


def known(echoes: Echoes) -> list[bytes]:
    return [bytes(each) for each in echoes._values]


def shown(frame: Frame) -> object:
    """Everything that a frame says, to be compared."""
    if not isinstance(frame, Message):
        return frame
    return [
        bytes(each) if isinstance(each, Raw) else each for each in msgspec.structs.astuple(frame)
    ]


ECHOES = [
    (HEAD, b"}\n"),
    (ID + b'"method":"session/prompt","params":', b"}\n"),
    (ID + b'"result":', b"}\n"),
    (INNER, b"}}\n"),
    (b'{"params":', b',"method":"session/update","jsonrpc":"2.0"}\n'),
    (b' {"jsonrpc" : "2.0", "method":"m", "params" : ', b" } \n"),
    (INNER.replace(b"proxy/", b"_proxy/"), b',"_meta":{"x":"\xc3\xa9"}}}\n'),
    (INNER, b'},"id":"7"}\n'),
]
ATTACKS = [
    (HEAD + b'{"_meta":{"x":[', b',"\xc3\xa9"]}}}\n'),  # how deep?
    (HEAD + b"[1,", b"]}\n"),
    (HEAD + b"[" * 450, b"]" * 450 + b"}\n"),
    (INNER + b"[" * 450, b"]" * 450 + b"}}\n"),
    (ID[:-2] + b"9" * 400 + b',"result":', b"}\n"),
    (b"", b"\n"),  # no message
    (b"[", b"]\n"),
    (b"[" + HEAD, b"}]\n"),
    (HEAD, b"\n"),
    (HEAD, b"}}\n"),
    (HEAD, b"}x\n"),
    (HEAD, b"} {}\n"),
    (HEAD, b'},"id":1}\n'),
    (HEAD, b',"id":1}\n'),
    (HEAD, b',"i\\u0064":1}\n'),
    (HEAD, b',"params":{}}\n'),  # the last of two is it
    (HEAD, b',"params":{"stand-in":0}}\n'),
    (HEAD + b'{"stand-in":0},"x":', b"}\n"),
    (HEAD + b'{"stand-in":0},"params":', b"}\n"),
    (HEAD + b'{},"x":', b"}\n"),
    (HEAD, b',"method":"_x"}\n'),
    (HEAD, b',"result":1}\n'),
    (HEAD, b',"error":{"code":1,"message":"m"}}\n'),
    (HEAD + b'"', b'"}\n'),  # in a string
    (HEAD + b'["a', b'b"]}\n'),
    (HEAD + b'["\\', b'"]}\n'),
    (HEAD + b'["\\\\', b'"]}\n'),
    (HEAD + b'["\\u', b'"]}\n'),
    (HEAD + b"{", b":1}}\n"),  # as a key
    (HEAD + b'{"a" ', b"}}\n"),
    (HEAD + b"1", b"}\n"),
    (HEAD + b"[1", b"]}\n"),
    (HEAD + b"[-", b"]}\n"),
    (HEAD + b"[", b"1]}\n"),
    (HEAD + b"[", b",]}\n"),
    (HEAD + b"[", b'"\xff"]}\n'),  # no UTF-8 around it
    (HEAD + b'["\xff",', b"]}\n"),
    (HEAD + b'["\xc3', b'\xa9"]}\n'),
    (HEAD + b'["\\ud83d",', b"]}\n"),
    (HEAD + b"[" * 2000, b"]" * 2000 + b"}\n"),
    (HEAD + b"[" + b" " * 5000, b"]}\n"),
    (HEAD + b"[", b" " * 5000 + b"]}\n"),
    (ID + b'"error":', b"}\n"),
    (ID + b'"result":1,"x":', b"}\n"),
    (b'{"jsonrpc":"2.0","id":', b',"method":"m"}\n'),
    (b'{"jsonrpc":"2.0","method":', b"}\n"),
    (b'{"jsonrpc":"1.0","method":"m","params":', b"}\n"),
    (b'{"method":"m","params":', b"}\n"),
    (b"\x1b[0m" + HEAD, b"}\n"),
    (b"\xef\xbb\xbf" + HEAD, b"}\n"),
    (b"Loading " + HEAD, b"}\n"),
]


@pytest.mark.parametrize("value", [VALUE, LIST], ids=["object", "list"])
@pytest.mark.parametrize(("head", "tail"), ECHOES + ATTACKS)
def test_a_known_value_says_what_it_says_when_it_is_not_known(head, tail, value):
    line = head + value + tail
    assert shown(knowing(value).decode(line)) == shown(decode(line))


@pytest.mark.parametrize(("head", "tail"), ECHOES)
def test_a_known_value_is_not_looked_at(head, tail, monkeypatch):
    line, looked_at = head + VALUE + tail, []
    monkeypatch.setattr(
        "conductor.connection.echoes.decode", lambda line: looked_at.append(line) or decode(line)
    )
    assert type(knowing(VALUE).decode(line)) is Message
    assert sum(map(len, looked_at)) < 200


_around = st.lists(
    st.sampled_from(
        [
            *(piece for pair in ECHOES + ATTACKS for piece in pair if len(piece) < 200),
            STAND_IN,
            STAND_IN[:2],
            STAND_IN[1:],
            VALUE[:64],
            b'"',
            b"\\",
            b",",
            b"{",
            b"}",
            b'"a":',
            b"\xff",
        ]
    ),
    max_size=4,
).map(b"".join)


@given(_around, _around)
@example(HEAD, b"}\n")
def test_whatever_stands_around_it(head, tail):
    line = head + VALUE + tail
    assert shown(knowing(VALUE).decode(line)) == shown(decode(line))


def test_how_deeply_it_is_nested_is_found_out():
    """As deeply as can be read is refused; nobody can make it deeper step by step."""
    some = raw_json.deepest(msgspec.json.Decoder(Raw).decode) - 250
    deep = b'{"v":%b"%b"%b}' % (b"[" * some, TEXT, b"]" * some)
    echoes = knowing(deep)
    frame = echoes.decode(HEAD + b"[" * 400 + deep + b"]" * 400 + b"}\n")
    assert isinstance(frame, Malformed)
    assert "nested too deeply" in frame.reason

    echoes = knowing(deep)
    frame = echoes.decode(INNER + b"[" * 400 + deep + b"]" * 400 + b"}}\n")
    assert isinstance(frame, Message)
    with pytest.raises(RequestError, match="Invalid params"):
        unwrap(frame.params)


@given(st.integers(0, len(VALUE) - 1), st.sampled_from([b"", b'"', b"\\", b"}", b"\xff", b"\0"]))
@example(len(VALUE) - 1, b"]")
@example(len(VALUE) - 3, b"\xff")
@example(0, b"[")
def test_a_changed_value_is_checked(at, byte):
    line = HEAD + VALUE[:at] + byte + VALUE[at + 1 :] + b"}\n"
    assert shown(knowing(VALUE).decode(line)) == shown(decode(line))


def test_a_value_with_a_byte_that_is_not_utf8_is_refused():
    changed = VALUE.replace(b"\xa9", b"\xff", 1)
    frame = knowing(VALUE).decode(HEAD + changed + b"}\n")
    assert isinstance(frame, Malformed)
    assert "not UTF-8: byte 0xc3" in frame.reason


def test_the_value_goes_on_as_the_object_that_it_was():
    """So that a chain of eight holds it once."""
    echoes = knowing(VALUE)
    (value,) = echoes._values
    message = echoes.decode(HEAD + VALUE + b"}\n")
    assert isinstance(message, Message)
    assert message.params is value


@pytest.mark.parametrize("dialect", DIALECTS)
def test_what_is_remembered_are_the_values_in_the_lines_that_a_proxy_gets(dialect):
    echoes = Echoes()
    echoes.sent(
        (
            *wrap_notification(dialect, "session/update", Raw(VALUE)),
            *wrap_request(dialect, 1, "session/prompt", Raw(LIST)),
            *notification_pieces("small", Raw(b"{}")),
            Raw(b'"%b"' % TEXT),
            (HEAD + VALUE + b"}\n") * 2,
            *notification_pieces("session/update", VALUE + b" "),  # a plugin's, as it likes
        )
    )
    assert known(echoes) == [VALUE, LIST]


def numbered(count: int) -> list[bytes]:
    return [b'{"n":%d,"text":"%b"}' % (number, TEXT) for number in range(count)]


def test_what_came_before_a_value_that_is_sent_on_is_forgotten_with_it():
    values = numbered(5)
    echoes = knowing(*values)
    echoes.decode(HEAD + values[2] + b"}\n")
    assert known(echoes) == values[3:]


def test_another_large_line_makes_the_oldest_be_forgotten():
    values = numbered(3)
    echoes = knowing(*values)
    echoes.decode(HEAD + VALUE + b"}\n")
    assert known(echoes) == values[1:]
    for _ in range(3):
        echoes.decode(HEAD + VALUE + b"}\n")
    assert known(echoes) == []


def test_no_more_is_kept_than_there_is_room_for_and_that_is_free_again():
    values = numbered(200)
    echoes = knowing(*values)
    kept = known(echoes)
    assert kept == values[: len(kept)]
    assert 6_200_000 < sum(map(len, kept)) <= 6 * 1024 * 1024

    for value in kept:
        echoes.decode(HEAD + value + b"}\n")
    echoes.sent(notification_pieces("session/update", Raw(values[-1])))

    assert known(echoes) == [values[-1]]


def test_a_value_that_is_larger_than_all_the_room_is_not_kept():
    assert known(knowing(b'{"text":"%b"}' % (b"x" * 6 * 1024 * 1024))) == []


def test_one_value_among_many_that_begin_alike_is_found_soon_or_not_at_all():
    values = numbered(20)
    assert shown(knowing(*values).decode(HEAD + values[19] + b"}\n")) == shown(
        decode(HEAD + values[19] + b"}\n")
    )


def test_a_peer_that_is_gone_holds_nothing():
    outbox = Outbox(echoes=knowing(VALUE))
    outbox.clear()
    assert outbox.echoes is None
