"""Every requirement has tests, and they exist."""

from __future__ import annotations

import ast
from collections import Counter
from pathlib import Path

from support.scenario_manifest import REQUIREMENTS

HERE = Path(__file__).parent


def names_in(path):
    return [
        node.name
        for node in ast.parse(path.read_text()).body
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and node.name.startswith("test_")
    ]


def scenarios():
    paths = sorted(HERE.glob("test_*.py"))
    return [name for path in paths if path.name != Path(__file__).name for name in names_in(path)]


LISTED = [test for each in REQUIREMENTS for test in each.tests]


def test_every_requirement_has_tests():
    assert [each.id for each in REQUIREMENTS if not each.tests] == []


def test_listed_tests_exist():
    assert {test for test in LISTED if "::" not in test} - set(scenarios()) == set()


def test_listed_tests_of_other_directories_exist():
    elsewhere = [test.split("::") for test in LISTED if "::" in test]

    assert [
        (file, name) for file, name in elsewhere if name not in names_in(HERE.parent / file)
    ] == []


def test_requirement_ids_are_unique():
    assert max(Counter(each.id for each in REQUIREMENTS).values()) == 1
