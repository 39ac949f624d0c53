"""JSON with comments and trailing commas: values with their places, mistakes with theirs."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from conductor.cli.install.jsonc import JsoncError, find, parse

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


def test_a_place_is_the_text_of_the_value():
    text = '{"a": {"b": [1, {"c": 2}]}}'

    node = find(parse(text), ["a", "b"])

    assert node is not None
    assert text[node.start : node.end] == '[1, {"c": 2}]'
    assert find(parse(text), ["a", "x"]) is None


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
