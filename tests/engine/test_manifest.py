"""Every requirement has a test, and every scenario a requirement."""

from __future__ import annotations

import ast
from collections import Counter
from pathlib import Path

from support.scenario_manifest import REQUIREMENTS

HERE = Path(__file__).parent


def scenarios():
    return [
        node.name
        for path in sorted(HERE.glob("test_*.py"))
        if path.name != Path(__file__).name
        for node in ast.parse(path.read_text()).body
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and node.name.startswith("test_")
    ]


def test_every_requirement_has_tests_that_exist():
    known = set(scenarios())

    missing = [(each.id, each.tests) for each in REQUIREMENTS if not set(each.tests) <= known]
    assert missing == []
    assert all(each.tests for each in REQUIREMENTS)


def test_every_scenario_checks_a_requirement():
    listed = [test for each in REQUIREMENTS for test in each.tests]

    assert sorted(scenarios()) == sorted(listed)


def test_requirement_ids_are_unique():
    assert max(Counter(each.id for each in REQUIREMENTS).values()) == 1
