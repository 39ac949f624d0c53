"""Uses of packages: the lock files that refer to them, and the last use of pins without one.

`agents/lock-files` has the path of a lock file in each line, as JSON: a line is added when `lock`
or `update` writes the lock file, and when a chain starts from it for the first time. The
modification time of a file in `agents/pins/` is its last use. `prune` keeps what is in use.

Imports little: it is part of every start.
"""

from __future__ import annotations

import os
import time
from contextlib import suppress
from pathlib import Path
from typing import Final

import msgspec

from conductor.errors import RegistryError
from conductor.files import open_own, read_own
from conductor.json_values import decode_value
from conductor.registry.store import replace_file, store_directory, store_path

__all__ = ["forget_missing", "known_lock_files", "note_lock_file", "note_pin"]

_RECORDS: Final = "lock-files"
_PRECISION: Final = 3600.0
"""Seconds: the last use of a pin is not written more often."""


def note_lock_file(path: str) -> None:
    """Record that packages are started from a lock file. Never raises."""
    with suppress(OSError, RegistryError, UnicodeEncodeError):
        line = msgspec.json.encode(os.path.abspath(path)) + b"\n"
        if line in _lines():
            return
        fd = open_own(store_directory() / _RECORDS, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        try:
            os.write(fd, line)
        finally:
            os.close(fd)


def note_pin(path: Path) -> None:
    """Record the use of a pin that is in no lock file. Never raises."""
    with suppress(OSError):
        if time.time() - path.stat().st_mtime > _PRECISION:
            os.utime(path)


def known_lock_files() -> list[str]:
    """The lock files that were used and still exist."""
    found = []
    for line in _lines():
        with suppress(msgspec.DecodeError, ValueError):  # ValueError: a null character
            path = decode_value(line, type=str)
            if os.path.exists(path):
                found.append(path)
    return found


def forget_missing() -> None:
    """Remove the records of lock files that no longer exist."""
    lines = [msgspec.json.encode(path) + b"\n" for path in dict.fromkeys(known_lock_files())]
    if lines != _lines():
        replace_file(store_path(_RECORDS), b"".join(lines))


def _lines() -> list[bytes]:
    try:
        return read_own(store_path(_RECORDS)).splitlines(keepends=True)
    except OSError:
        return []
