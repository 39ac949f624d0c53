"""The difference of two JSON values in a few lines."""

from __future__ import annotations

import pytest

from conductor.tracing.json_diff import json_diff, short_json


@pytest.mark.parametrize(
    ("old", "new", "lines"),
    [
        ({"a": 1, "b": [1, {"c": None}]}, {"b": [1, {"c": None}], "a": 1}, []),
        ({"a": 1}, {"a": 2}, ["- a: 1", "+ a: 2"]),
        ({"a": 1}, {"a": True}, ["- a: 1", "+ a: true"]),
        ({"a": 1}, {"a": "1"}, ["- a: 1", '+ a: "1"']),
        ({"a": {"b": 1}}, {"a": {"c": [2]}}, ["- a.b: 1", "+ a.c: [2]"]),
        ([1, 2, 3], [0, 1, 2, 3], ["+ [0]: 0"]),
        ({"x": [1, 2, 3]}, {"x": [1, 3]}, ["- x[1]: 2"]),
        (
            {"x": [{"t": "a"}, {"t": "b"}]},
            {"x": [{"t": "a"}, {"t": "c"}]},
            ['- x[1].t: "b"', '+ x[1].t: "c"'],
        ),
        ([1], [2, 3], ["- [0]: 1", "+ [0]: 2", "+ [1]: 3"]),
        (None, {"a": 1}, ["- null", '+ {"a": 1}']),
    ],
)
def test_the_differences_are_shown_in_order(old, new, lines):
    assert json_diff(old, new) == lines


def test_of_long_texts_the_part_around_the_difference_is_shown():
    old, new = "x" * 1000 + " old " + "y" * 1000, "x" * 1000 + " new " + "y" * 1000

    removed, added = json_diff({"t": old}, {"t": new})

    assert removed.startswith(f'- t: "…{"x" * 23} old yyy')
    assert added.startswith(f'+ t: "…{"x" * 23} new yyy')
    assert len(added) < 100


def test_a_long_value_is_cut():
    assert short_json(["é" * 100], 10) == '["ééééééé…'
