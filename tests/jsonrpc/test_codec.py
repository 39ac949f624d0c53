"""Any line becomes exactly one frame."""

from __future__ import annotations

import json
import sys
import tracemalloc

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from msgspec import UNSET
from support import raw_json

from conductor.jsonrpc.codec import Batch, Malformed, decode, oversized_line, strip_ansi
from conductor.jsonrpc.messages import Message


def fields(frame):
    """The members of a message; payloads as bytes."""
    assert type(frame) is Message, frame
    found = {name: getattr(frame, name) for name in ("id", "method")}
    found |= {
        name: value if value is UNSET else bytes(value)
        for name in ("params", "result", "error")
        for value in [getattr(frame, name)]
    }
    return {name: value for name, value in found.items() if value is not UNSET}


def outline(frame):
    """The code, id and kind of a malformed line."""
    assert type(frame) is Malformed, frame
    return frame.code, frame.id, frame.response


@pytest.mark.parametrize("name", ["params", "result", "error"])
@pytest.mark.parametrize(
    ("size", "junk", "held"),
    [(100_000, 500_000, 0), (100_000, 1, 1), (1000, 1000, 0), (10, 1000, 1)],
)
def test_a_small_payload_does_not_keep_a_long_line_in_memory(name, size, junk, held):
    """It may be queued for long, and only its own size is counted."""
    value = b'{"code":1,"message":"%b"}' % (b"x" * size)
    line = b'{"jsonrpc":"2.0","id":1,"%b":%b%b%b}' % (
        name.encode(),
        value,
        b" " * junk,
        b',"method":"m"' if name == "params" else b"",
    )
    before = sys.getrefcount(line)

    frame = decode(line)

    assert bytes(getattr(frame, name)) == value
    assert sys.getrefcount(line) - before == held


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        (b'{"jsonrpc":"2.0","id":1,"method":"x"}', {"id": 1, "method": "x"}),
        (b'{"jsonrpc":"2.0","id":null,"method":"x"}', {"id": None, "method": "x"}),
        (b'{"jsonrpc":"2.0","id":"","method":""}', {"id": "", "method": ""}),
        (b'{"jsonrpc":"2.0","method":"x","params":[1]}', {"method": "x", "params": b"[1]"}),
        (b' {"method":"x" , "jsonrpc":"2.0" } \r', {"method": "x"}),
        (b'{"jsonrpc":"2.0","method":"x","params":null}', {"method": "x"}),
        (b'{"jsonrpc":"2.0","method":"x","params": null }', {"method": "x"}),
        (b'{"jsonrpc":"2.0","id":1,"result":null}', {"id": 1, "result": b"null"}),
        (b'{"jsonrpc":"2.0","id":1,"id":2,"method":"x"}', {"id": 2, "method": "x"}),
        (
            b'{"jsonrpc":"2.0","id":-9223372036854775808,"method":"x"}',
            {"id": -(2**63), "method": "x"},
        ),
        (b'{"jsonrpc":"2.0","id":1,"method":"x","extra":{"a":1}}', {"id": 1, "method": "x"}),
        (
            b'{"jsonrpc":"2.0","id":null,"error":{"code":-1,"message":"m","data":1e400}}',
            {"id": None, "error": b'{"code":-1,"message":"m","data":1e400}'},
        ),
    ],
)
def test_a_message_is_decoded_no_further_than_its_envelope(line, expected):
    assert fields(decode(line)) == expected


@pytest.mark.parametrize(
    ("line", "code", "id", "response"),
    [
        (b"", -32700, UNSET, False),
        (b"{oops", -32700, UNSET, False),
        (b'{"jsonrpc":"2.0","id":4,"method":"x"', -32700, 4, False),
        (b'{"jsonrpc":"2.0","id":4,"result":{"cut', -32700, 4, True),
        (b'{"jsonrpc":"2.0","id":4,"result":NaN}', -32700, 4, True),
        (b'{"jsonrpc":"2.0","id":1,"method":"x"}\0', -32700, 1, False),
        (b'{"jsonrpc":"2.0","id":1,"method":"\xff"}', -32700, 1, False),
        (b'{"jsonrpc":"2.0","id":1,"result":"\xed\xa0\x80"}', -32700, 1, True),
        (b'{"jsonrpc":"2.0","id":1,"method":"x"} trailing', -32700, 1, False),
        (b"7", -32600, UNSET, False),
        (b'"\\ud800"', -32600, UNSET, False),
        (b"[]", -32600, UNSET, False),
        (b"{}", -32600, UNSET, False),
        (b'{"id":1,"method":"x"}', -32600, 1, False),
        (b'{"jsonrpc":"1.0","id":1,"method":"x"}', -32600, 1, False),
        (b'{"jsonrpc":"2.0","id":1,"method":7}', -32600, 1, False),
        (b'{"jsonrpc":"2.0","id":1}', -32600, 1, False),
        (b'{"jsonrpc":"2.0","id":5,"method":"x","params":7}', -32600, 5, False),
        (b'{"jsonrpc":"2.0","id":1.5,"method":"x"}', -32600, UNSET, False),
        (b'{"jsonrpc":"2.0","id":{},"method":"x"}', -32600, UNSET, False),
        (b'{"jsonrpc":"2.0","id":9223372036854775808,"method":"x"}', -32600, 2**63, False),
        (b'{"jsonrpc":"2.0","id":1,"method":"x","result":1}', -32600, 1, False),
        (b'{"jsonrpc":"2.0","id":1,"result":1,"error":null}', -32600, 1, True),
        (b'{"jsonrpc":"2.0","id":1,"error":{"code":1}}', -32600, 1, True),
        (b'{"jsonrpc":"2.0","id":1,"error":{"code":1.5,"message":"x"}}', -32600, 1, True),
        (b'{"jsonrpc":"2.0","error":{"code":-32601,"message":"x"}}', -32600, UNSET, True),
        (b'{"jsonrpc":"2.0","result":1}', -32600, UNSET, True),
        (b'{"jsonrpc":"2.0","id":[],"result":1}', -32600, UNSET, True),
        (b'{"jsonrpc":"2.0","id":1,"foo":"\\ud800"}', -32600, 1, False),
        (b'{"id":1,"foo":"\\ud800"}', -32600, 1, False),
        (b'{"jsonrpc":"2.0","id":"\\ud800","method":"x"}', -32600, UNSET, False),
        (b'{"jsonrpc":"2.0","id":1,"error":{"code":true,"message":"\\ud800"}}', -32600, 1, True),
    ],
)
def test_an_invalid_line_is_malformed_with_its_reason_and_id(line, code, id, response):
    assert outline(decode(line)) == (code, id, response)


def test_a_batch_keeps_the_order_of_its_members_malformed_ones_included():
    frame = decode(
        b'[{"jsonrpc":"2.0","id":1,"method":"a"}, 7, [] ,[1],'
        b'{"jsonrpc":"2.0","id":2,"result":1,"error":2}]'
    )

    assert isinstance(frame, Batch)
    first, *others = frame.members
    assert fields(first) == {"id": 1, "method": "a"}
    assert [outline(other) for other in others] == [
        (-32600, UNSET, False),
        (-32600, UNSET, False),
        (-32600, UNSET, False),
        (-32600, 2, True),
    ]


def test_an_unclosed_batch_is_a_parse_error():
    assert outline(decode(b'[{"jsonrpc":"2.0","id":1,"method":"a"}')) == (-32700, UNSET, False)


@pytest.mark.parametrize(
    "params",
    [
        rb'["\ud83d"]',
        rb'["\uDEAD",9007199254740993,1e400,{"a":1,"a":2}]',
        rb'{ "text" : "half \ud83d", "\ud800": [ 1 , 2 ] }',
        b'["\\ud800",%s]' % (b"9" * 5000),
    ],
)
def test_lone_surrogates_keep_their_bytes(params):
    line = b'{"id":"a", "jsonrpc":"2.0" ,"method":"x","params":%s}' % params

    assert fields(decode(line)) == {"id": "a", "method": "x", "params": params}


def test_an_escaped_surrogate_pair_in_an_id_is_decoded():
    frame = decode(rb'{"jsonrpc":"2.0","id":"\ud83d\ude00","method":"x","params":["\ud83d"]}')

    assert fields(frame) == {"id": "😀", "method": "x", "params": rb'["\ud83d"]'}


def test_lone_surrogates_pass_in_responses_and_in_batches():
    line = rb'{"jsonrpc":"2.0","id":1,"error":{"code":1,"message":"\ud800"}}'

    assert fields(decode(line)) == {"id": 1, "error": rb'{"code":1,"message":"\ud800"}'}
    (member,) = decode(b"[" + line + b"]").members
    assert fields(member) == fields(decode(line))


@pytest.mark.parametrize("escape", [rb"\ue000", rb"\uE000", "\ue000".encode()])
def test_lone_surrogates_pass_beside_their_substitutes(escape):
    text = b'"\\ud83d \\uDEAD %b \\\\ud83d"' % escape
    line = b'{"jsonrpc":"2.0","id":"\\ud83d\\ude00%b","method":"x","params":[%b]}' % (escape, text)

    assert fields(decode(line)) == {"id": "😀\ue000", "method": "x", "params": b"[%b]" % text}


def test_a_lone_surrogate_beside_escapes_of_all_candidate_blocks_is_refused():
    escapes = b"".join(b"\\u%b000" % block.encode() for block in "eabcf")
    line = b'{"jsonrpc":"2.0","id":1,"method":"x","params":["\\ud83d%b"]}' % escapes

    assert outline(decode(line)) == (-32600, 1, False)


@pytest.mark.parametrize(
    "line",
    [
        b'{"jsonrpc":"2.0","id":1,"method":"x","params":["\\ud800",%b1]}' % (b"[]," * 500_000),
        b"[[%b1],1]" % (b"[]," * 900_000),
        b'["\\ud800",[%b1],1]' % (b"[]," * 900_000),
        b"[%b1]" % (b"1," * 3_000_000),
        b'{"jsonrpc":"2.0","id":"' + b'\\"' * 500_000,
    ],
    ids=["surrogate", "batch", "batch with a surrogate", "batch of millions", "garbage"],
)
def test_decoding_creates_no_objects_for_values_in_payloads(line):
    """The standard library's objects took 56 times the memory, and blocked all clients."""
    tracemalloc.start()
    try:
        decode(line)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()

    assert peak < 8 * len(line)


@pytest.mark.parametrize("depth", [100, 199, 200, 201, 204, 300, 990, 5000, 100_000])
def test_decode_never_raises_for_deep_nesting(depth):
    for opening, closing in [(b"[", b"]"), (b'{"a":', b"}"), (b'["\\ud800",', b"]")]:
        nested = opening * depth + b"1" + closing * depth
        whole = b'{"jsonrpc":"2.0","id":1,"result":%s}' % nested
        for line in (nested, opening * depth, whole, b'["\\udead",%s]' % whole):
            decode(line)


def test_a_response_nested_too_deeply_still_settles_its_request():
    line = b'{"jsonrpc":"2.0","id":8,"result":%b}' % raw_json.nested(raw_json.TOO_DEEP)

    assert outline(decode(line)) == (-32600, 8, True)


_WORDS = rb"""
    { } [ ] , : " \ null 1 1e999 {"jsonrpc":"2.0" "id" "id":1 "id":"\ud800" "method":"m" "params"
    "result": "error": {"code":1,"message":"x"} "\ud800"
"""
_pieces = st.sampled_from([*_WORDS.split(), b'"\xff"', b"\x1b[0m", b"\xef\xbb\xbf", b"\0"])


@given(st.lists(_pieces, max_size=12).map(b"".join))
@example(b'["\\ud800"]')
def test_decode_never_raises_for_nearly_valid_lines(line):
    frame = decode(line)
    if type(frame) is Message:
        json.loads(line)
    strip_ansi(line)
    oversized_line(line, line, len(line), 1)


@given(raw_json.objects | raw_json.arrays, st.sampled_from(["", " ", "\t"]))
def test_any_payload_keeps_its_bytes(params, space):
    payload = params.encode()
    line = b'{"jsonrpc":"2.0",%s"method":"m","params":%s}' % (space.encode(), payload)

    assert fields(decode(line)) == {"method": "m", "params": payload}


@given(raw_json.values)
def test_any_result_keeps_its_bytes(value):
    line = b'{"jsonrpc":"2.0","id":1,"result":%s}' % value.encode()

    assert fields(decode(line)) == {"id": 1, "result": value.encode()}


@pytest.mark.parametrize(
    ("printed", "rest"),
    [
        (b"\x1b[32m{}", b"{}"),
        (b"\x1b[?25l\x1b[0;1m\x1b]0;title\x07{}", b"{}"),
        (b"\x1b]0;title\x1b\\{}", b"{}"),
        (b"\xef\xbb\xbf{}", b"{}"),
        (b"{}", b"{}"),
        (b"text \x1b[0m{}", b"text \x1b[0m{}"),
        (b"\x1b", b"\x1b"),
    ],
)
def test_terminal_escapes_before_a_message_are_removed(printed, rest):
    assert strip_ansi(printed) == rest


@pytest.mark.parametrize(
    ("head", "tail", "id", "response"),
    [
        (b'{"jsonrpc":"2.0","id":7,"method":"m","params":{"a":"xxx', b'xxx"}}', 7, False),
        (b'{"id":"s","jsonrpc":"2.0","result":{"a":"xxx', b'xxx"}}', "s", True),
        (b'{"jsonrpc":"2.0","result":{"a":"xxx', b'xxx"},"id":7}', 7, True),
        (b'{"jsonrpc":"2.0","method":"m","params":{"a":"xxx', b'xxx"}, "id" : "z" }\r', "z", False),
        (b'{"jsonrpc":"2.0","method":"m","params":{"a":"xxx', b'","id":5}}', UNSET, False),
        (b'{"jsonrpc":"2.0","method":"m","params":{"id":3,"a":"xxx', b'xxx"}}', UNSET, False),
        (b'[{"jsonrpc":"2.0","id":1,"method":"m","params":"xxx', b'xxx"}]', UNSET, False),
        (b"xxxxxxxxxxxxxx", b"xxxxxxx", UNSET, False),
        (b'{"jsonrpc":"2.0","result":{"a":"xxx', b'xxx"},"id":"\\x"}', UNSET, True),
        (b'{"jsonrpc":"2.0","result":{"a":"xxx', b'xxx"},"id":"\xff"}', UNSET, True),
        (b'{"jsonrpc":"2.0","id":"\\ud800","result":{"a":"xxx', b'xxx"}}', UNSET, True),
    ],
)
def test_the_ends_of_a_line_over_the_limit_show_its_id(head, tail, id, response):
    frame = oversized_line(head, tail, 1000, 100)

    assert outline(frame) == (-32600, id, response)
    assert "1000 bytes" in frame.reason
    assert "100 bytes" in frame.reason
