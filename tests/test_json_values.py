"""The bound on the depth of JSON that is decoded: ours, not the interpreter's."""

from __future__ import annotations

import msgspec
import pytest
from support.raw_json import nested

from conductor.json_values import NestedTooDeeply, decode_loosely, decode_value
from conductor.limits import MAX_DEPTH

DEEP = nested(MAX_DEPTH + 1)


@pytest.mark.parametrize(
    "text",
    [
        nested(MAX_DEPTH),
        b'{"a":' * MAX_DEPTH + b"1" + b"}" * MAX_DEPTH,
        b"[" + b"[],{}," * 1000 + b"[{}]]",
        b'["' + b"[{" * 1000 + b'"]',
        b'["' + rb"\"[\\" * 1000 + b'",[]]',
        b'{"' + b"[" * 1000 + b'":"\\\\","]' + b"]" * 1000 + b'":[]}',
    ],
)
def test_brackets_in_texts_and_beside_each_other_are_no_depth(text):
    assert decode_value(text) == decode_loosely(text)


@pytest.mark.parametrize("depth", [MAX_DEPTH + 1, 900, 960, 1000, 5000, 1_000_000])
@pytest.mark.parametrize("decode", [decode_value, decode_loosely])
@pytest.mark.parametrize(("opening", "closing"), [(b"[", b"]"), (b'{"a":', b"}"), (b'["[",', b"]")])
def test_deeper_json_is_refused(depth, decode, opening, closing):
    with pytest.raises(NestedTooDeeply, match="nested more than 128 deep"):
        decode(opening * depth + b"1" + closing * depth)


def test_what_a_type_does_not_name_may_be_deeper():
    class Named(msgspec.Struct):
        kept: msgspec.Raw
        count: int

    found = decode_value(b'{"count":1,"kept":%b,"other":%b}' % (DEEP, DEEP), Named)

    assert (found.count, bytes(found.kept)) == (1, DEEP)


def test_invalid_utf8_is_an_error_of_decoding():
    with pytest.raises(msgspec.DecodeError):
        decode_value(b'"\xff"')
