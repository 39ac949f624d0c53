"""A component's stderr: its end is kept, its lines are logged at a bounded rate."""

from __future__ import annotations

import pytest

from conductor.supervision.component_run import StderrTail


def test_lines_are_given_to_the_log_as_they_are_completed():
    tail = StderrTail()

    assert tail.feed(b"first\nsec", 0.0) == ["first"]
    assert tail.feed(b"ond\r\n\n  \nlast", 0.0) == ["second"]
    assert tail.end() == ["last"]
    assert tail.end() == []


def test_terminal_escapes_and_bytes_that_are_no_text_are_made_readable():
    tail = StderrTail()

    lines = tail.feed(b"\x1b[31merror\x1b[0m: \x1b]0;title\x07\xff\n", 0.0)

    assert lines == ["error: \\xff"]
    assert tail.last_lines() == ("error: \\xff",)


@pytest.mark.parametrize(
    "line",
    [b"\x1b\x1b[m]52;c;ZXZpbA==\x07", b"\x1bc", b"\x1bP1;2q", b"\xc2\x9b31m", "\u202ex".encode()],
    ids=["nested", "reset", "device control", "one byte", "direction"],
)
def test_nothing_of_stderr_controls_a_terminal(line):
    tail = StderrTail()

    lines = [*tail.feed(line + b"\n", 0.0), *tail.last_lines()]

    assert len(lines) == 2
    assert all(map(str.isprintable, lines))


def test_only_the_last_lines_are_shown():
    tail = StderrTail()
    tail.feed(b"".join(b"line %d\n\n" % number for number in range(100)), 0.0)

    assert tail.last_lines() == tuple(f"line {number}" for number in range(80, 100))


def test_only_lines_since_the_last_success_are_shown():
    tail = StderrTail()
    tail.feed(b"before\n", 0.0)
    tail.forget()
    assert tail.last_lines() == ()

    tail.feed(b"after\n", 0.0)

    assert tail.last_lines() == ("after",)


def test_a_flood_of_short_lines_fills_the_log_no_faster_than_one_of_long_lines():
    """Each line of the log has more than 100 bytes of its own."""
    tail = StderrTail()

    lines = [line for n in range(200) for line in tail.feed(b"x\n" * 1000, 1000.0 + n / 100)]

    assert sum(128 + len(line) for line in lines) <= 4 * 65536
    assert tail.take_skipped() >= 2 * 190_000


def test_a_very_long_line_is_cut():
    tail = StderrTail()

    (line,) = tail.feed(b"x" * 10_000, 0.0)

    assert line == "x" * 4096 + "… [cut]"
    assert tail.last_lines() == (line,)


@pytest.mark.parametrize(("size", "total"), [(1, 300_000), (1000, 3_000_000), (65536, 3_000_000)])
def test_a_flood_costs_no_memory_and_is_not_logged(size, total):
    tail = StderrTail()
    logged = 0
    for _ in range(total // size):
        logged += sum(map(len, tail.feed(b"x" * (size - 1) + b"\n", 1000.0)))

    assert logged <= 2 * 65536
    assert tail.take_skipped() > total - 4 * 65536
    assert tail.take_skipped() == 0
    assert sum(map(len, tail._chunks)) <= 2 * 65536
    assert len(tail._partial) <= 4096


def test_logging_resumes_after_a_flood():
    tail = StderrTail()
    for _ in range(10):
        tail.feed(b"x" * 65536, 0.0)

    assert tail.feed(b"quiet again\n", 10.0) == ["quiet again"]


def test_half_a_line_before_a_flood_is_not_joined_with_a_line_after_it():
    tail = StderrTail()
    tail.feed(b"x" * 65536 + b"\nhalf a li", 0.0)
    tail.feed(b"ne\n", 0.0)

    assert tail.feed(b"another\n", 10.0) == ["another"]
