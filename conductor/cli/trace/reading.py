"""Trace files, read for commands: a file that cannot be read is a usage error (exit code 2).

In place of a file, commands take the process id of a running conductor.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from conductor.tracing.reader import Trace, TraceFileError
    from conductor.tracing.records import Record

__all__ = [
    "check_is_trace",
    "followed_records",
    "lines_and_records",
    "load",
    "no_trace",
    "records_of",
]


def check_is_trace(path: str) -> None:
    """Read the first record, if there is one. Raises `click.UsageError`."""
    next(records_of(path), None)


def no_trace(error: TraceFileError) -> click.UsageError:
    """The usage error for a file that is not a trace: which line, and where traces come from."""
    return click.UsageError(f"{error}\nTrace files are written by `--trace FILE`.")


def records_of(path: str) -> Iterator[Record]:
    """The records of a file, in order. Raises `click.UsageError`."""
    return _records(_lines(path), path)


def lines_and_records(path: str) -> Iterator[tuple[bytes, Record]]:
    """The lines of a file with their records, in order. Raises `click.UsageError`."""
    last = b""

    def lines() -> Iterator[bytes]:
        nonlocal last
        for line in _lines(path):
            last = line
            yield line

    for record in _records(lines(), path):  # takes one line for each record
        yield last, record


def followed_records(path: str, wait: Callable[[], None]) -> Iterator[Record]:
    """The records of a growing file, without end; `wait` is called between them.

    Raises `click.UsageError`.
    """
    from conductor.cli.trace.follow_file import follow_lines

    return _records(follow_lines(path, wait), path)


def load(path: str) -> Trace:
    """A file in memory. Raises `click.UsageError`."""
    from conductor.tracing.reader import Trace

    return Trace(path, tuple(records_of(path)))


def _lines(path: str) -> Iterator[bytes]:
    from conductor.cli.trace.running import is_running, lines_of_running

    if is_running(path):
        yield from lines_of_running(int(path))
        return
    with open(path, "rb") as file:
        yield from file


def _records(lines: Iterator[bytes], path: str) -> Iterator[Record]:
    from conductor.tracing.reader import TraceFileError, read_records

    try:
        yield from read_records(lines, path)
    except TraceFileError as exc:
        raise no_trace(exc) from exc
    except OSError as exc:
        raise click.UsageError(f"{path}: {exc.strerror}") from exc
