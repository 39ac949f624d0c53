"""Members of JSON objects as raw JSON."""

from __future__ import annotations

import pytest
from hypothesis import given
from support import raw_json

from conductor.jsonrpc.json_object import list_items, member_at, object_members, with_member


def test_the_members_of_an_object_with_lone_surrogates_keep_their_bytes():
    value = rb'{ "\ud83d\ude00": "\ud83d", "\uDEAD" : [1e999, "\u00e4"], "a": 1, "a": 2 }'

    assert object_members(value) == {"😀": rb'"\ud83d"', "\udead": rb'[1e999, "\u00e4"]', "a": b"2"}


@pytest.mark.parametrize(
    ("value", "amended"),
    [
        (b" { } ", b' {"s":{"t":1}}'),
        (rb'{"a":"\ud83d" , "b":1e400}', rb'{"a":"\ud83d" , "b":1e400,"s":{"t":1}}'),
        (rb'{"\u0073":null,"a":{"s":2}}', rb'{"s":{"t":1},"a":{"s":2}}'),
        (rb'{"s":{"u": [1 ,2],"t":7}}', rb'{"s":{"u":[1 ,2],"t":1}}'),
    ],
)
def test_a_member_is_set_at_a_path_and_all_others_keep_their_bytes(value, amended):
    assert with_member(value, ["s", "t"], b"1") == amended
    assert member_at(amended, "s", "t") == b"1"


@pytest.mark.parametrize("value", [b"[]", b"{", b"{} 1", b'"x"', rb'["\ud83d"]'])
def test_no_member_is_set_or_read_in_a_value_that_is_no_object(value):
    assert member_at(value, "s") is None
    with pytest.raises(ValueError):
        with_member(value, ["s"], b"1")


@given(raw_json.objects)
def test_the_members_of_an_object_keep_their_bytes(value):
    assert object_members(value.encode()) == raw_json.cut(value.encode())


@pytest.mark.parametrize("value", [b"[]", b"7", b"{} x", b"{", b'"\\ud800"'])
def test_object_members_of_a_non_object_raises(value):
    with pytest.raises(ValueError):
        object_members(value)


@pytest.mark.parametrize(
    ("value", "items"),
    [
        (b"[]", []),
        (b' [1, {"a": [2]} ,"x"]', [b"1", b'{"a": [2]}', b'"x"']),
        (
            rb'["\ud83d",{"\ud83d":"\ud83d"}, 1e400]',
            [rb'"\ud83d"', rb'{"\ud83d":"\ud83d"}', b"1e400"],
        ),
    ],
)
def test_the_items_of_a_list_keep_their_bytes(value, items):
    assert list_items(value) == items


@pytest.mark.parametrize("value", [b"{}", b"7", b"[] x", b"[", b'"\\ud800"'])
def test_list_items_of_another_value_raises(value):
    with pytest.raises(ValueError):
        list_items(value)
