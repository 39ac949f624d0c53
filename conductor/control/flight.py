"""The flight recorder on disk: the last messages of the chains of this process, as a trace file.

The files are in a private state directory, which keeps the newest `KEPT_FILES`. Payloads are cut to
their first bytes, secrets masked.
"""

from __future__ import annotations

import os
import re
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

import attrs

from conductor.control.directory import private_directory
from conductor.control.running_chains import flights
from conductor.files import open_own
from conductor.log import get_logger
from conductor.places import state_directory
from conductor.routing.trace import Mark
from conductor.tracing.encoder import Encoder
from conductor.tracing.recorder import FLIGHT_ENTRIES, Entry, Passage, StartEntry, TraceRecorder

if TYPE_CHECKING:
    from conductor.control.running_chains import Flight

__all__ = ["KEPT_FILES", "FlightReader", "flight_directory", "write_flight"]

KEPT_FILES: Final = 20
_NAME: Final = re.compile(r"[^\w.-]+")
_lock: Final = threading.Lock()
_numbers = 0
"""Last record number over all files: a message that is written again keeps its number, by which
other records name it as their cause, and which the user has seen."""
_marks: Final[dict[tuple[float, int], Mark]] = {}
"""Marks of messages without one (between two processes), by time and identity of their entries."""

log: Final = get_logger(component="trace")


def flight_directory() -> Path:
    """The directory of the files; it need not exist."""
    return Path(state_directory(), "flight")


def write_flight(recorded: Iterable[Flight], reason: str) -> Path | None:
    """Write flight recorders to a new file, and log its path.

    Returns `None` if that is not possible, or if nothing was sent before a failure.
    """
    entries = [entry for flight in recorded for entry in flight.copy()]
    if not entries or (
        reason == "failure" and not any(isinstance(each, tuple) for each in entries)
    ):
        return None
    try:
        directory = private_directory(flight_directory())
        with _lock:
            data = _encoded(entries, Encoder("head"), set())
        path = _write(directory, _file_name(entries), data)
        _remove_old(directory)
    except OSError as exc:
        log.warning("flight recorder not written", error=str(exc))
        return None
    log.info("flight recorder written", file=str(path), reason=reason, entries=len(entries))
    return path


@attrs.define(eq=False)
class FlightReader:
    """Incremental reader of the flight recorders."""

    _encoder: Encoder = attrs.field(factory=lambda: Encoder("head"), init=False)
    _seen: set[TraceRecorder] = attrs.field(factory=set, init=False)
    _last: dict[int, Entry] = attrs.field(factory=dict, init=False)
    """The last entry that was read, by the identity of the recorder's deque."""

    def read(self) -> bytes:
        """The records added since the previous call, as lines."""
        entries = [entry for flight in flights() for entry in self._added(flight)]
        with _lock:
            return _encoded(entries, self._encoder, self._seen)

    def _added(self, flight: Flight) -> list[Entry]:
        last, added = self._last.get(id(flight)), []
        for entry in reversed(flight.copy()):
            if entry is last:
                break
            added.append(entry)
        if added:
            self._last[id(flight)] = added[0]
        return added[::-1]


def _encoded(entries: Iterable[Entry], encoder: Encoder, seen: set[TraceRecorder]) -> bytes:
    """Lines of the entries, with a header before the first entry of each chain."""
    global _numbers
    encoder.last = max(encoder.last, _numbers)
    lines = encoder.encode(map(_marked, _with_headers(entries, seen)))
    _numbers = encoder.last
    if len(_marks) > 2 * FLIGHT_ENTRIES:
        _forget_marks()
    return lines


def _marked(entry: Entry) -> Entry:
    """The entry with a mark, which keeps its number."""
    if not isinstance(entry, tuple):
        return entry
    passage = Passage(*entry)
    if passage.mark is not None:
        return passage
    return passage._replace(mark=_marks.setdefault((entry[0], id(entry)), Mark(entry[0])))


def _forget_marks() -> None:
    """Remove the marks of entries that are no longer kept."""
    entries = (each for flight in flights() for each in flight.copy() if isinstance(each, tuple))
    for key in _marks.keys() - {(each[0], id(each)) for each in entries}:
        del _marks[key]


def _with_headers(entries: Iterable[Entry], seen: set[TraceRecorder]) -> Iterator[Entry]:
    for entry in entries:
        recorder = entry[1].tracer if isinstance(entry, tuple) else entry.recorder
        if recorder not in seen:
            seen.add(recorder)
            yield StartEntry(recorder, tuple(recorder.components))
        yield entry


def _file_name(entries: Sequence[Entry]) -> str:
    last = entries[-1]
    recorder = last[1].tracer if isinstance(last, tuple) else last.recorder
    name = _NAME.sub("-", recorder.chain.partition("/")[0]).strip("-")[:60] or "chain"
    return f"{name}-{time.strftime('%Y%m%d-%H%M%S')}-{os.getpid()}"


def _write(directory: Path, name: str, data: bytes) -> Path:
    """Write a new file with mode 0600; one of the same second gets a number."""
    for number in range(1, 1000):
        path = directory / (f"{name}.jsonl" if number == 1 else f"{name}-{number}.jsonl")
        with suppress(FileExistsError):
            with os.fdopen(open_own(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL), "wb") as file:
                file.write(data)
            return path
    raise FileExistsError(0, "too many flight recorder files", str(directory))


def _remove_old(directory: Path) -> None:
    files = sorted(directory.glob("*.jsonl"), key=lambda path: path.lstat().st_mtime)
    for path in files[:-KEPT_FILES]:
        with suppress(OSError):
            path.unlink()
