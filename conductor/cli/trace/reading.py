"""Traces, read for commands: a file that cannot be read is a usage error (exit code 2).

The files that a conductor has renamed because they were full are read before the one that is named.
In place of a file, commands take the process id of a running conductor.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click

from conductor.files import open_as_given

if TYPE_CHECKING:
    from conductor.tracing.reader import TraceFileError
    from conductor.tracing.records import Record

__all__ = [
    "check_is_trace",
    "dumped_file",
    "followed_records",
    "is_running",
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


def load(path: str) -> tuple[Record, ...]:
    """The records of a trace. Raises `click.UsageError`."""
    return tuple(records_of(path))


def records_of(path: str) -> Iterator[Record]:
    """The records of a trace, in order; headers that a further file repeats are left out.

    Raises `click.UsageError`.
    """
    from conductor.tracing.records import TraceHeader

    headers: list[Record] = []
    for _, record in lines_and_records(path):
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
    """The records of a growing trace, without end, and `wait` is called between them; or those of a
    conductor without a file, until it ends.

    Raises `click.UsageError`.
    """
    *before, last = _parts(path)
    for part in before:
        yield from _records(_lines(part), part)
    if is_running(last):
        lines = _asked_lines(int(last), "follow")
        next(lines, None)  # the one that says where the records are
        yield from _records(lines, f"conductor {last}")
    else:
        yield from _records(_followed_lines(last, wait), last)


def _followed_lines(path: str, wait: Callable[[], None]) -> Iterator[bytes]:
    """The whole lines of a file and of those that get its name. Waits for one that does not exist
    yet."""
    from conductor.tracing.reader import growing_lines

    while True:
        while not os.path.exists(path):
            wait()
        with open_as_given(path) as file:
            for _, line in growing_lines(Path(path), file, wait):
                yield line


def _parts(path: str) -> list[str]:
    """The files of a trace, the oldest first; the process id of a conductor that has none."""
    from conductor.tracing.reader import trace_parts

    if is_running(path):
        where = json.loads(next(_asked_lines(int(path), "records"), b"{}"))
        if (file := where.get("file")) is None:
            return [path]
        path = file
    return [str(each) for each in trace_parts(path)]


def _lines(path: str) -> Iterator[bytes]:
    """The lines of a file, or of a conductor's flight recorder."""
    if is_running(path):
        lines = _asked_lines(int(path), "records")
        next(lines, None)
        yield from lines
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


def is_running(name: str) -> bool:
    """Whether an argument is a process id; a file called `123` is written `./123`."""
    return name.isdigit()


def dumped_file(pid: int) -> str:
    """The trace file of a conductor, or one to which its flight recorder is written now.

    Raises `click.UsageError`.
    """
    from conductor.control.client import NoConductor, ask

    try:
        return str(ask(pid, "dump")["file"])
    except NoConductor as exc:
        raise click.UsageError(str(exc)) from None


def _asked_lines(pid: int, command: str) -> Iterator[bytes]:
    from conductor.control.client import NoConductor, lines

    try:
        yield from lines(pid, command)
    except NoConductor as exc:
        raise click.UsageError(str(exc)) from None
