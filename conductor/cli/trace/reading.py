"""Traces, read for commands: a file that cannot be read is a usage error (exit code 2).

The files that a conductor has renamed because they were full are read before the one that is named.
In place of a file, commands take the process id of a running conductor.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import click

from conductor.files import open_as_given

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
    """The records of a trace, in order; headers that a further file repeats are left out.

    Raises `click.UsageError`.
    """
    from conductor.tracing.records import TraceHeader

    headers: list[Record] = []
    for part in _parts(path):
        for record in _records(_lines(part), part):
            if isinstance(record, TraceHeader):
                if record in headers:
                    continue
                headers.append(record)
            yield record


def lines_and_records(path: str) -> Iterator[tuple[bytes, Record]]:
    """The lines of a trace with their records, in order. Raises `click.UsageError`."""
    last = b""

    def lines(part: str) -> Iterator[bytes]:
        nonlocal last
        for line in _lines(part):
            last = line
            yield line

    for part in _parts(path):
        for record in _records(lines(part), part):  # takes one line for each
            yield last, record


def followed_records(path: str, wait: Callable[[], None]) -> Iterator[Record]:
    """The records of a growing trace, without end; `wait` is called between them.

    Raises `click.UsageError`.
    """
    from conductor.cli.trace.follow_file import follow_lines

    for part in _parts(path)[:-1]:
        yield from _records(_lines(part), part)
    yield from _records(follow_lines(path, wait), path)


def load(path: str) -> Trace:
    """A trace in memory. Raises `click.UsageError`."""
    from conductor.tracing.reader import Trace

    return Trace(path, tuple(records_of(path)))


def _parts(path: str) -> list[str]:
    """The files of a trace, the oldest first; the process id of a conductor that has none."""
    from conductor.cli.trace.running import file_of, is_running
    from conductor.tracing.trace_parts import trace_parts

    if is_running(path):
        file = file_of(int(path))
        if file is None:
            return [path]
        path = file
    return [str(each) for each in trace_parts(path)]


def _lines(path: str) -> Iterator[bytes]:
    from conductor.cli.trace.running import is_running, lines_of_running

    if is_running(path):
        yield from lines_of_running(int(path))
        return
    with open_as_given(path) as file:
        yield from file


def _records(lines: Iterator[bytes], path: str) -> Iterator[Record]:
    from conductor.tracing.reader import TraceFileError, read_records

    try:
        yield from read_records(lines, path)
    except TraceFileError as exc:
        raise no_trace(exc) from exc
    except OSError as exc:
        raise click.UsageError(f"{path}: {exc.strerror}") from exc
