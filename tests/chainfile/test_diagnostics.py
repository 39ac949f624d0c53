"""How a problem is shown."""

from __future__ import annotations

import pytest

from conductor.chainfile import Diagnostic, SourceLocation
from conductor.chainfile.diagnostics import closest_match
from conductor.chainfile.source_location import SourceText


def _location(line: str, value: str) -> SourceLocation:
    start = line.index(value)
    return SourceText("chain.yaml", line).location(start, start + len(value))


def test_a_problem_has_a_place_a_line_a_caret_a_note_and_a_help() -> None:
    problem = Diagnostic(
        _location("  run: [a]", "[a]"),
        "message",
        note=(_location("run: b", "run"), "first given here"),
        help="one\ntwo",
    )
    assert str(problem) == (
        "chain.yaml:1:8: error: message\n"
        "   |   run: [a]\n"
        "   |        ^^^\n"
        "chain.yaml:1:1: note: first given here\n"
        "   | run: b\n"
        "   | ^^^\n"
        "help: one\n"
        "      two"
    )


def test_a_problem_without_a_line_is_one_line() -> None:
    problem = Diagnostic(SourceLocation.whole("<command line>"), "message")
    assert str(problem) == "<command line>: error: message"


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


@pytest.mark.parametrize(
    ("word", "meant"),
    [("max-size", "max_size"), ("MaxSize", "max_size"), ("xyz", None), ("", None)],
)
def test_only_a_similar_word_is_suggested(word: str, meant: str | None) -> None:
    assert closest_match(word, ["max_size", "on_failure"]) == meant
