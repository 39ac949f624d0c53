"""Temporary directories that killed conductors have left: of the MCP bridge and of `--view`.

A conductor holds a lock on each of its directories, which the kernel releases when it ends; so a
directory in use is never removed. Only directories that are private to this user are considered,
and only the files in them that conductors create are removed.
"""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Iterator
from contextlib import suppress
from fnmatch import fnmatch
from typing import Final

from conductor.transport.directory_lock import lock_directory

__all__ = ["VIEW_PREFIX", "remove_directory", "stale_directories"]

VIEW_PREFIX: Final = "acp-conductor-view-"
_BRIDGE_PREFIX: Final = "acp-mcp-"
_FILES: Final = {_BRIDGE_PREFIX: "s", VIEW_PREFIX: "trace.jsonl*"}
"""Patterns of the names of files in the directories."""
_BRIDGE_ROOT: Final = "/tmp"
"""The bridge uses it if the path of the usual one is too long for a socket."""
_MIN_AGE: Final = 1.0
"""Seconds that a new directory may have no lock."""


def stale_directories() -> list[str]:
    """The directories that ended conductors have left."""
    found = []
    for root in dict.fromkeys((tempfile.gettempdir(), _BRIDGE_ROOT)):
        for directory in _directories(root):
            with suppress(OSError):
                if (lock := _lock_stale(directory)) is not None:
                    os.close(lock)
                    found.append(directory)
    return found


def remove_directory(directory: str) -> None:
    """Remove a stale directory with its files; one that is in use again, or has others, is left."""
    pattern = next(_FILES[each] for each in _FILES if os.path.basename(directory).startswith(each))
    with suppress(OSError):
        if (lock := _lock_stale(directory)) is not None:
            try:
                for name in os.listdir(lock):
                    if fnmatch(name, pattern):
                        os.unlink(name, dir_fd=lock)
                os.rmdir(directory)
            finally:
                os.close(lock)


def _directories(root: str) -> Iterator[str]:
    with suppress(OSError), os.scandir(root) as entries:
        for entry in entries:
            if entry.name.startswith(tuple(_FILES)) and entry.is_dir(follow_symlinks=False):
                yield entry.path


def _lock_stale(directory: str) -> int | None:
    """The lock of a stale directory; `None` if it is in use, or new. Raises `OSError`."""
    is_new = time.time() - os.lstat(directory).st_ctime < _MIN_AGE
    return None if is_new else lock_directory(directory)
