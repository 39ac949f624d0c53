"""Findings of `doctor`."""

from __future__ import annotations

from conductor.cli.doctor.finding import Finding, in_order, is_wrong, text_lines

OK = Finding("ok", "python", "3.13")
SLOW = Finding("warning", "start", "slow", "install it", 2.5)
BROKEN = Finding("error", "mcp", "broken\nreason", "first\nsecond")


def test_the_worst_come_first_and_others_stay_in_order():
    other = Finding("ok", "path", "x")

    assert in_order([OK, SLOW, other, BROKEN]) == [BROKEN, SLOW, OK, other]


def test_only_an_error_is_wrong():
    assert is_wrong([OK, BROKEN])
    assert not is_wrong([OK, SLOW])


def test_the_text_says_what_to_do():
    assert list(text_lines([SLOW, BROKEN])) == [
        "error    mcp: broken",
        "         reason",
        "         → first",
        "         → second",
        "warning  start: slow (2500 ms)",
        "         → install it",
    ]


def test_json_has_what_is_known():
    assert OK.as_json() == {"severity": "ok", "check": "python", "message": "3.13"}
    assert SLOW.as_json()["seconds"] == 2.5


def test_escapes_of_programs_are_not_printed():
    assert list(text_lines([Finding("ok", "start", "a\x1b[31mb")])) == ["ok       start: a [31mb"]
