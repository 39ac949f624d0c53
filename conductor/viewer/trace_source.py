"""The records of a trace file that may grow, for the page.

A thread reads the file, after the full ones before it, and adds rows to the index; whole records
are read again when they are asked for. A file that is renamed when it is full stays open, and the
new file of its name is read.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import BinaryIO, Final, Literal

import attrs

from conductor.files import open_as_given
from conductor.tracing.reader import TraceFileError, growing_lines, read_records, trace_parts
from conductor.tracing.record_filter import RecordFilter
from conductor.tracing.records import TraceHeader
from conductor.transport.threads import block_signals
from conductor.viewer.trace_index import Link, TraceIndex

__all__ = ["MAX_ROWS", "TraceSource"]

MAX_ROWS: Final = 600_000
"""Rows of 26 pixels: a list in a browser cannot be much taller."""
_INTERVAL: Final = 0.1
"""Seconds between two looks at a file to which nothing is added."""
_SEARCH_SECONDS: Final = 0.25
"""Duration of one step of a search, which other requests wait for."""


@attrs.define(eq=False)
class TraceSource:
    """A trace file, its rows and its records; a context manager, in which the file is read.

    Entering raises `OSError` if the file cannot be opened.
    """

    path: Path
    report: Callable[[str], None] = lambda error: None
    """Called, in the thread, if the file cannot be read to its end."""
    index: TraceIndex = attrs.field(factory=TraceIndex, init=False)
    state: Literal["loading", "following", "failed"] = attrs.field(default="loading", init=False)
    error: str = attrs.field(default="", init=False)
    """Why the reading ended."""
    _files: list[BinaryIO] = attrs.field(factory=list, init=False)
    _places: list[tuple[int, int, int]] = attrs.field(factory=list, init=False)
    """File, offset and length of each row's line."""
    _stopped: threading.Event = attrs.field(factory=threading.Event, init=False)
    _thread: threading.Thread = attrs.field(init=False)
    _links: tuple[int, list[Link]] = attrs.field(default=(-1, []), init=False)

    def __enter__(self) -> TraceSource:
        self._files += [open_as_given(each) for each in trace_parts(self.path)]
        self._thread = threading.Thread(target=self._read, name="trace view", daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopped.set()
        self._thread.join()
        for file in self._files:
            file.close()

    def line(self, row: int) -> bytes | None:
        """The record of a row, as it is in the file; `None` if there is none."""
        if not 0 <= row < len(self._places):
            return None
        file, offset, length = self._places[row]
        return os.pread(self._files[file].fileno(), length, offset)

    def links(self) -> list[Link]:
        """Inferred links between messages; computed again when there are more messages."""
        count = len(self.index.rows)
        if self._links[0] != count:
            self._links = (count, self.index.links())
        return self._links[1]

    def search(self, text: str, first: int) -> tuple[list[int], int]:
        """Rows with a text in them, from `first` on, and the row from which to go on.

        Ends after a quarter of a second.
        """
        chosen = RecordFilter(everything=True, text=text)
        end = time.monotonic() + _SEARCH_SECONDS
        found, row = [], first
        while row < len(self._places) and time.monotonic() < end:
            part = range(row, min(row + 200, len(self._places)))
            lines = {each: line for each in part if _may_have(line := self.line(each) or b"", text)}
            records = read_records(lines.values(), str(self.path))
            found += [
                n
                for n, record in zip(lines, records, strict=True)
                if chosen.accepts(record) and not isinstance(record, TraceHeader)
            ]
            row = part.stop
        return found, row

    # -- in the thread -----------------------------------------------------------------------------

    def _read(self) -> None:
        block_signals()
        try:
            for record in read_records(self._lines(), str(self.path)):  # takes a line for each
                self.index.add(record)
                if len(self.index.rows) == MAX_ROWS:
                    raise TraceFileError(f"only the first {MAX_ROWS:,} records are shown")
        except (TraceFileError, OSError) as exc:
            del self._places[len(self.index.rows) :]
            self.error = str(exc)
            self.state = "failed"
            self.report(self.error)

    def _lines(self) -> Iterator[bytes]:
        """The whole lines of the file, and those that are added, until the source is closed."""
        number = 0
        while not self._stopped.is_set():
            for offset, line in growing_lines(self.path, self._files[number], self._wait):
                if self._stopped.is_set():
                    return
                if not line.isspace():
                    self._places.append((number, offset, len(line)))
                    yield line
            number += 1
            if number == len(self._files) and not self._stopped.is_set():
                self._files.append(open_as_given(self.path))

    def _wait(self) -> bool:
        self.state = "following"
        return self._stopped.wait(_INTERVAL)


def _may_have(line: bytes, text: str) -> bool:
    """Whether a record can have a text in it: a tenth of the time of decoding it."""
    if b"\\" in line:  # escapes
        return True
    if text.isascii():
        return text.lower().encode() in line.lower()
    return text.casefold() in line.decode(errors="replace").casefold()
