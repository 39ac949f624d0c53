"""Edits of JSON with comments: only the member that is set or removed changes."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from conductor.cli.install.jsonc import JsoncError, parse, remove_value, replace_text, set_value

INSERTIONS = {
    "an empty text": ("", '{\n  "s": {\n    "k": 1\n  }\n}\n'),
    "only a comment": ("// mine", '// mine\n{\n  "s": {\n    "k": 1\n  }\n}\n'),
    "an empty object": ("{}", '{\n  "s": {\n    "k": 1\n  }\n}'),
    "an empty object of two lines": ("{\n}\n", '{\n  "s": {\n    "k": 1\n  }\n}\n'),
    "an object on one line": ('{"a": 1}\n', '{"a": 1, "s": {"k": 1}}\n'),
    "no trailing comma": (
        '{\n    "a": 1 // one\n    // end\n}',
        '{\n    "a": 1, // one\n    "s": {\n        "k": 1\n    }\n    // end\n}',
    ),
    "a trailing comma": (
        '{\n\t"a": 1, /* one */\n}',
        '{\n\t"a": 1, /* one */\n\t"s": {\n\t\t"k": 1\n\t},\n}',
    ),
    "windows lines": (
        '{\r\n  "a": 1\r\n}\r\n',
        '{\r\n  "a": 1,\r\n  "s": {\r\n    "k": 1\r\n  }\r\n}\r\n',
    ),
    "an object that exists": (
        '{\n  "s": {\n    "a": [\n      1\n    ]\n  },\n  "b": 2\n}',
        '{\n  "s": {\n    "a": [\n      1\n    ],\n    "k": 1\n  },\n  "b": 2\n}',
    ),
    "an object with a comment": (
        '{\n  "s": { // agents\n  }\n}',
        '{\n  "s": { // agents\n    "k": 1\n  }\n}',
    ),
}


@pytest.mark.parametrize(("before", "after"), INSERTIONS.values(), ids=INSERTIONS)
def test_an_insertion_follows_the_text_around_it(before, after):
    assert set_value(before, ["s", "k"], 1) == after


@pytest.mark.parametrize(("before", "after"), INSERTIONS.values(), ids=INSERTIONS)
def test_removing_the_insertion_leaves_the_same_values(before, after):
    path = ["s", "k"] if '"s"' in before else ["s"]

    restored = remove_value(after, path)

    old, new = parse(before), parse(restored)
    assert new is not None
    assert new.value == (old.value if old is not None else {})
    if old is not None and old.value not in ({}, {"s": {}}):
        assert restored == before


def test_a_value_is_replaced_in_place():
    text = '{\n  "a": [ 1 ], // one\n  "b": 2\n}'

    assert set_value(text, ["a"], [3]) == '{\n  "a": [3], // one\n  "b": 2\n}'
    assert replace_text(text, ["a"], "[\n]") == '{\n  "a": [\n], // one\n  "b": 2\n}'


@pytest.mark.parametrize(
    ("before", "key", "after"),
    [
        ('{"a": 1, "b": 2}', "a", '{"b": 2}'),
        ('{"a": 1, "b": 2}', "b", '{"a": 1}'),
        ('{ "a": 1, "b": 2 }', "b", '{ "a": 1 }'),
        ('{"a": 1, "b": 2}', "x", '{"a": 1, "b": 2}'),
        ('{\n  "a": 1,\n  // of b\n  "b": 2\n}', "a", '{\n  // of b\n  "b": 2\n}'),
        ('{\n  "a": 1, // one\n  "b": 2\n}', "b", '{\n  "a": 1 // one\n}'),
        ('{\n  "a": 1,\n  "b": 2,\n}', "b", '{\n  "a": 1,\n}'),
        ('{\n  "a": 1 // one\n}', "a", "{\n  // one\n}"),
    ],
)
def test_a_removal_takes_one_comma_and_no_comment(before, key, after):
    assert remove_value(before, [key]) == after


@pytest.mark.parametrize("text", ["[]", '{"s": 1}', '{"s": [1]}'])
def test_a_value_on_the_way_that_is_no_object_is_an_error(text):
    with pytest.raises(JsoncError, match="expected an object"):
        set_value(text, ["s", "k"], 1)


KEYS = st.sampled_from(["s", "a", "b", "é", 'quote"'])
OBJECTS = st.recursive(
    st.dictionaries(KEYS, st.integers() | st.text() | st.lists(st.integers()), min_size=1),
    lambda inner: st.dictionaries(KEYS, inner, min_size=1),
    max_leaves=8,
)


@given(OBJECTS, st.sampled_from([None, 2, 4, "\t"]), st.lists(KEYS, min_size=1, max_size=3))
def test_an_edit_changes_one_value_and_its_removal_restores_the_text(value, indent, path):
    text = json.dumps(value, indent=indent, ensure_ascii=False)
    place = value
    for key in path[:-1]:
        place = place.setdefault(key, {}) if isinstance(place, dict) else None
    if not isinstance(place, dict) or path[-1] in place:
        return
    is_new = value != json.loads(text)
    place[path[-1]] = [1]

    edited = set_value(text, path, [1])

    assert json.loads(edited) == value
    if not is_new:
        assert remove_value(edited, path) == text
