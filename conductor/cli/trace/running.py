"""The records of a running conductor, named by its process id."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from conductor.tracing.records import Record

__all__ = ["file_of", "is_running", "records_of_running"]


def is_running(name: str) -> bool:
    """Whether an argument is a process id, not a file."""
    return name.isdigit() and not os.path.exists(name)


def file_of(pid: int) -> str | None:
    """The trace file of a conductor; `None` if it only has a flight recorder.

    Raises `click.UsageError`.
    """
    where: dict[str, str | None] = json.loads(next(_lines(pid, "records"), b"{}"))
    return where.get("file")


def records_of_running(pid: int, wait: Callable[[], None] | None = None) -> Iterator[Record]:
    """The records of the flight recorder; with `wait`, also those to come, until it ends: it is
    called before each. Raises `click.UsageError`."""
    from conductor.tracing.reader import read_records

    lines = _lines(pid, "records" if wait is None else "follow")
    next(lines, None)  # the one that says where the records are
    for record in read_records(lines, f"conductor {pid}"):
        yield record
        if wait is not None:
            wait()


def _lines(pid: int, command: str) -> Iterator[bytes]:
    from conductor.control.client import NoConductor, lines

    try:
        yield from lines(pid, command)
    except NoConductor as exc:
        raise click.UsageError(str(exc)) from None
