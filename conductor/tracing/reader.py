"""Read trace files, of this conductor and of the Rust conductor."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import BinaryIO, Final

import attrs
import msgspec

from conductor.files import open_as_given, open_regular
from conductor.tracing.records import (
    MessageRecord,
    NotificationRecord,
    Record,
    RequestRecord,
    ResponseRecord,
    TraceHeader,
)

__all__ = ["Trace", "TraceFileError", "growing_lines", "read_records", "trace_parts"]

_MANY_DIGITS: Final = 4000
"""Python refuses to convert more than 4,300."""

_LAST: Final = 1_000_000
"""The place of an agent in the file of another conductor."""
_GZIP: Final = b"\x1f\x8b"
"""The beginning of a file that gzip has made."""

_BLOCK: Final = 1024 * 1024


class _Start(msgspec.Struct):
    """The members of a record that tell where its file begins."""

    type: str = ""
    n: int = 0
    pid: int = 0


_decode = msgspec.json.Decoder(Record).decode
_decode_start = msgspec.json.Decoder(_Start).decode


class TraceFileError(ValueError):
    """A file that is not a trace; the message has path and line."""


def read_records(lines: Iterable[bytes], path: str = "<trace>") -> Iterator[Record]:
    """The records of the lines of a trace file, in order.

    The messages of another conductor's file get numbers and names: `n` is the number of the line,
    `sender` and `receiver` are `from` and `to`. A last line without its newline is left out: it is
    being written. Raises `TraceFileError`, with path and line.
    """
    requests: dict[tuple[str, object], RequestRecord] = {}
    for number, line in enumerate(lines, 1):
        if number == 1 and line.startswith(_GZIP):
            raise TraceFileError(f"{path}: is compressed: unpack it first (gunzip)")
        if not line.endswith(b"\n"):
            if number == 1 and not line.startswith(b"{"):
                raise TraceFileError(f"{path}:1: not a record of a trace: expected {{")
            return
        if line.isspace():
            continue
        try:
            record = _decode_line(line)
        except (ValueError, RecursionError) as exc:
            raise TraceFileError(f"{path}:{number}: not a record of a trace: {exc}") from exc
        if isinstance(record, MessageRecord) and record.n == 0:
            _complete(record, number, requests)
        yield record


def _decode_line(line: bytes) -> Record:
    record: Record
    try:
        record = _decode(line)
    except msgspec.DecodeError:  # a lone surrogate, a number out of range
        record = msgspec.convert(json.loads(line, parse_int=_integer), Record)
    return record


def _integer(text: str) -> int | str:
    """An integer; its digits, if it has more than Python converts."""
    return int(text) if len(text) <= _MANY_DIGITS else text


def _complete(
    record: MessageRecord, number: int, requests: dict[tuple[str, object], RequestRecord]
) -> None:
    """Add what the files of other conductors have not."""
    record.n = number
    record.sender, record.receiver = record.from_, record.to
    record.hop = min(_place(record.from_), _place(record.to))
    match record:
        case RequestRecord():
            requests[record.to, record.id] = record
        case ResponseRecord():
            asked = requests.pop((record.from_, record.id), None)
            if asked is not None:
                record.request, record.method = asked.n, asked.method
                record.elapsed = record.ts - asked.ts


def _place(name: str) -> int:
    """The number of the hop behind a component: 0 for `Client`, 1 for `Proxy(0)`."""
    if name == "Client":
        return 0
    found = re.fullmatch(r"Proxy\((\d{1,6})\)", name)
    return _LAST if found is None else int(found[1]) + 1


@attrs.frozen
class Trace:
    """A trace in memory."""

    path: str
    records: tuple[Record, ...]

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Trace:
        """Read a file, and those before it that were full (`trace_parts`).

        Raises `OSError`, and `TraceFileError` for a file that is not a trace.
        """
        records: list[Record] = []
        for part in trace_parts(path):
            with open_as_given(part) as file:
                records += read_records(file, str(part))
        return cls(str(path), tuple(records))

    @property
    def header(self) -> TraceHeader | None:
        """The first header; `None` in a file of another conductor."""
        return next((each for each in self.records if isinstance(each, TraceHeader)), None)

    @property
    def messages(self) -> list[RequestRecord | NotificationRecord | ResponseRecord]:
        """The messages, in order."""
        kinds = (RequestRecord, NotificationRecord, ResponseRecord)
        return [each for each in self.records if isinstance(each, kinds)]


def trace_parts(path: str | os.PathLike[str]) -> list[Path]:
    """The files of a trace, the oldest first; `path` is the last of them.

    A file that is full is renamed, and the trace goes on in a new one. That of an earlier run is
    renamed in the same way, but is not part of the trace: each run numbers its messages from 1, and
    its conductor has another process id.
    """
    parts = [Path(path)]
    pid, first = _beginning(parts[0])
    while first > 1:
        older = Path(f"{path}.{len(parts)}")
        older_pid, first = _beginning(older)
        if older_pid != pid:
            break
        parts.append(older)
    return parts[::-1]


def _beginning(path: Path) -> tuple[int, int]:
    """The process that wrote a file, and the number of its first message; 0: not known."""
    pid = 0
    try:
        with os.fdopen(open_regular(path), "rb") as file:
            for line in file:
                record = _decode_start(line)
                pid = record.pid or pid
                if record.n:
                    return pid, record.n
    except (OSError, msgspec.MsgspecError, RecursionError):
        pass  # is reported when the file is read
    return pid, 0


def growing_lines(
    path: Path, file: BinaryIO, wait: Callable[[], object]
) -> Iterator[tuple[int, bytes]]:
    """The whole lines of a file that grows, with their offsets, until it is renamed.

    `wait` is called when there is nothing to read now; if it returns true, the reading ends.
    """
    offset, rest = 0, b""
    while True:
        is_renamed = _is_renamed(path, file)  # before the reading: nothing is added after it
        while block := file.read(_BLOCK):
            *lines, rest = (rest + block).split(b"\n")
            for line in lines:
                yield offset, line + b"\n"
                offset += len(line) + 1
        if is_renamed or wait():
            return


def _is_renamed(path: Path, file: BinaryIO) -> bool:
    """Whether the path is now that of another file."""
    try:
        now = path.stat()
    except FileNotFoundError:
        return False  # being renamed, or removed
    opened = os.fstat(file.fileno())
    return (now.st_dev, now.st_ino) != (opened.st_dev, opened.st_ino)
