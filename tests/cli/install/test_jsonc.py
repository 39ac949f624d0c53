"""JSON with comments and trailing commas: values, mistakes with their places, and edits, which
change only the member that is set or removed."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from conductor.cli.install.jsonc import JsoncError, find, parse, remove_value, set_value

VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=12,
)


@given(VALUES, st.sampled_from([None, 2, "\t"]), st.booleans())
def test_json_is_read_as_by_the_json_module(value, indent, ascii):
    root = parse(json.dumps(value, indent=indent, ensure_ascii=ascii))

    assert root is not None
    assert root.value == value


def test_comments_and_trailing_commas_are_skipped():
    root = parse(
        '\ufeff// a\n{ /* b */ "x": [1, 2, ], // "y": 3\n "z": "// no comment", }\n/* c */'
    )

    assert root is not None
    assert root.value == {"x": [1, 2], "z": "// no comment"}


def test_of_repeated_keys_the_last_counts():
    node = find(parse('{"a": 1, "a": 2}'), ["a"])

    assert node is not None
    assert node.value == 2


@pytest.mark.parametrize("text", ["", " \n", "// nothing\n", "/* nothing */"])
def test_a_text_without_a_value_is_none(text):
    assert parse(text) is None


@pytest.mark.parametrize(
    ("text", "message", "index"),
    [
        ('{"a": 1 "b": 2}', "expected `,` or `}`", 8),
        ("[1 2]", "expected `,` or `]`", 3),
        ("{a: 1}", 'expected a key in "…", or `}`', 1),
        ('{"a" 1}', "expected `:` after the key", 5),
        ('{"a": tru}', "expected a value", 6),
        ('{"a": ', "expected a value", 6),
        ('{"a": 1', "expected `,` or `}`", 7),
        ('{"a": "b\n"}', "this string does not end on its line", 6),
        (r'{"a": "\x"}', "this string has an invalid escape", 6),
        ("{} {}", "expected the end of the file", 3),
        ("{ /* x }", "this comment has no end", 2),
        ("[" * 1000, "nested more than 100 deep", 101),
    ],
)
def test_a_mistake_has_its_place(text, message, index):
    with pytest.raises(JsoncError) as caught:
        parse(text)

    assert (str(caught.value), caught.value.index) == (message, index)


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
