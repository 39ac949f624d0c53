"""How a problem is shown."""

from __future__ import annotations

import pytest

from conductor.chainfile import Diagnostic, SourceLocation
from conductor.chainfile.diagnostics import SourceText


def _location(line: str, value: str) -> SourceLocation:
    start = line.index(value)
    return SourceText("chain.yaml", line).location(start, start + len(value))


@pytest.mark.parametrize(
    ("line", "value", "shown", "caret"),
    [
        ("a:\tb", "b", "   | a:\tb", "   |   \t^"),
        ("名前: 値", "値", "   | 名前: 値", "   |       ^^"),
        ("e\u0301: x", "x", "   | e\u0301: x", "   |    ^"),
        ("a: \x1b[31m", "\x1b[31m", "   | a: ␚[31m", "   |    ^^^^^"),
        ("a: " + "x" * 200, "x" * 200, "   | a: " + "x" * 117 + "…", "   |    " + "^" * 117),
        (
            "y" * 90 + "xz" + "y" * 90,
            "xz",
            "   | …" + "y" * 40 + "xz" + "y" * 78 + "…",
            "   | " + " " * 41 + "^^",
        ),
    ],
    ids=["tab", "wide", "combining", "escape", "long value", "long line"],
)
def test_the_caret_is_under_the_value(line: str, value: str, shown: str, caret: str) -> None:
    assert str(Diagnostic(_location(line, value), "m")).splitlines()[1:] == [shown, caret]


def test_a_value_of_several_lines_is_shown_by_its_first() -> None:
    assert SourceText("c", "a: [b,\r\n  c]\n").location(3, 12) == SourceLocation(
        "c", 1, 4, 7, "a: [b,"
    )
