"""Members of JSON objects as raw JSON."""

from __future__ import annotations

import tracemalloc

import pytest
from hypothesis import given
from support import raw_json

from conductor.jsonrpc.json_object import list_items, object_members, with_member


def test_the_members_of_an_object_with_lone_surrogates_keep_their_bytes():
    value = rb'{ "\ud83d\ude00": "\ud83d", "\uDEAD" : [1e999, "\u00e4"], "a": 1, "a": 2 }'

    assert object_members(value) == {"😀": rb'"\ud83d"', "\udead": rb'[1e999, "\u00e4"]', "a": b"2"}


@pytest.mark.parametrize(
    ("value", "amended"),
    [
        (b"{}", b'{"s":1}'),
        (b" { } ", b' {"s":1}'),
        (rb'{"a":"\ud83d" , "a":2 }', rb'{"a":"\ud83d" , "a":2,"s":1}'),
        (rb'{"\u0073":null,"a":{"s":2}}', rb'{"a":{"s":2},"s":1}'),
        (
            rb'{"s":0,"a":"\ue000\ua000\ub000\uc000\uf000"}',
            rb'{"a":"\ue000\ua000\ub000\uc000\uf000","s":1}',
        ),
    ],
)
def test_with_member_replaces_all_members_of_that_name(value, amended):
    assert with_member(value, "s", b"1") == amended


def test_with_member_creates_no_objects_for_other_members():
    value = b"{%b}" % b",".join(b'"%d":1' % number for number in range(200_000))
    tracemalloc.start()
    try:
        assert with_member(value, "s", b"1") == value[:-1] + b',"s":1}'
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()

    assert peak < 6 * len(value)


@pytest.mark.parametrize("value", [b"[]", b"{", b"{} 1", b'"x"', rb'["\ud83d"]'])
def test_with_member_of_a_non_object_raises(value):
    with pytest.raises(ValueError):
        with_member(value, "s", b"1")


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
