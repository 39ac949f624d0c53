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
    from conductor.tracing.reader import Trace, TraceFileError
    from conductor.tracing.records import Record

__all__ = [
    "check_is_trace",
    "dumped_file",
    "file_of",
    "followed_records",
    "followed_records_of_running",
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
    for part in _parts(path)[:-1]:
        yield from _records(_lines(part), part)
    yield from _records(_followed_lines(path, wait), path)


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


def load(path: str) -> Trace:
    """A trace in memory. Raises `click.UsageError`."""
    from conductor.tracing.reader import Trace

    return Trace(path, tuple(records_of(path)))


def _parts(path: str) -> list[str]:
    """The files of a trace, the oldest first; the process id of a conductor that has none."""
    from conductor.tracing.reader import trace_parts

    if is_running(path):
        file = file_of(int(path))
        if file is None:
            return [path]
        path = file
    return [str(each) for each in trace_parts(path)]


def _lines(path: str) -> Iterator[bytes]:
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


def is_running(name: str) -> bool:
    """Whether an argument is a process id; a file called `123` is written `./123`."""
    return name.isdigit()


def file_of(pid: int) -> str | None:
    """The trace file of a conductor; `None` if it only has a flight recorder.

    Raises `click.UsageError`.
    """
    where: dict[str, str | None] = json.loads(next(_asked_lines(pid, "records"), b"{}"))
    return where.get("file")


def lines_of_running(pid: int) -> Iterator[bytes]:
    """The lines of a conductor's trace file, or else of its flight recorder.

    Raises `click.UsageError`, and `OSError` if the file cannot be read.
    """
    lines = _asked_lines(pid, "records")
    where: dict[str, str | None] = json.loads(next(lines, b"{}"))
    if (file := where.get("file")) is None:
        yield from lines
        return
    with open_as_given(file) as written:
        yield from written


def followed_records_of_running(pid: int, wait: Callable[[], None]) -> Iterator[Record]:
    """The records of the flight recorder and those to come, until the conductor ends; `wait` is
    called before each. Raises `click.UsageError`."""
    from conductor.tracing.reader import read_records

    lines = _asked_lines(pid, "follow")
    next(lines, None)  # the one that says where the records are
    for record in read_records(lines, f"conductor {pid}"):
        yield record
        wait()


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
