"""The files of one trace: a file that is full is renamed, and the trace goes on in a new one.

The file of an earlier run is renamed in the same way, but is not part of the trace: each run
numbers its messages from 1, and its conductor has another process id.
"""

from __future__ import annotations

import os
from pathlib import Path

import msgspec

from conductor.files import open_regular

__all__ = ["trace_parts"]


class _Start(msgspec.Struct):
    """The members of a record that tell where its file begins."""

    type: str = ""
    n: int = 0
    pid: int = 0


_decode = msgspec.json.Decoder(_Start).decode


def trace_parts(path: str | os.PathLike[str]) -> list[Path]:
    """The files of a trace, the oldest first; `path` is the last of them."""
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
                record = _decode(line)
                pid = record.pid or pid
                if record.n:
                    return pid, record.n
    except (OSError, msgspec.MsgspecError, RecursionError):
        pass  # is reported when the file is read
    return pid, 0
