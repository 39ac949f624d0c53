"""The records of a running conductor, named by its process id."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import click

from conductor.files import open_as_given

if TYPE_CHECKING:
    from conductor.tracing.records import Record

__all__ = [
    "dumped_file",
    "file_of",
    "followed_records_of_running",
    "is_running",
    "lines_of_running",
]


def is_running(name: str) -> bool:
    """Whether an argument is a process id; a file called `123` is written `./123`."""
    return name.isdigit()


def file_of(pid: int) -> str | None:
    """The trace file of a conductor; `None` if it only has a flight recorder.

    Raises `click.UsageError`.
    """
    where: dict[str, str | None] = json.loads(next(_lines(pid, "records"), b"{}"))
    return where.get("file")


def lines_of_running(pid: int) -> Iterator[bytes]:
    """The lines of a conductor's trace file, or else of its flight recorder.

    Raises `click.UsageError`, and `OSError` if the file cannot be read.
    """
    lines = _lines(pid, "records")
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

    lines = _lines(pid, "follow")
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


def _lines(pid: int, command: str) -> Iterator[bytes]:
    from conductor.control.client import NoConductor, lines

    try:
        yield from lines(pid, command)
    except NoConductor as exc:
        raise click.UsageError(str(exc)) from None
