"""Stale temporary directories of killed conductors: those of the MCP bridge and of `--view`.

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

from conductor.files import lock_directory

__all__ = ["VIEW_PREFIX", "remove_directory", "stale_directories"]

VIEW_PREFIX: Final = "acp-conductor-view-"
_BRIDGE_PREFIX: Final = "acp-mcp-"
_FILES: Final = {_BRIDGE_PREFIX: "s", VIEW_PREFIX: "trace.jsonl*"}
"""Glob patterns of the files that conductors create, by prefix of the directory's name."""
_BRIDGE_ROOT: Final = "/tmp"
"""Fallback of the bridge if the usual path is too long for a socket address."""
_MIN_AGE: Final = 1.0
"""Seconds after its creation before a directory without a lock is stale."""


def stale_directories() -> list[str]:
    """The paths of the stale directories."""
    found = []
    for root in dict.fromkeys((tempfile.gettempdir(), _BRIDGE_ROOT)):
        for directory in _directories(root):
            with suppress(OSError):
                if (lock := _lock_stale(directory)) is not None:
                    os.close(lock)
                    found.append(directory)
    return found


def remove_directory(directory: str) -> None:
    """Remove a stale directory and the conductor's files in it.

    It stays if it is in use again, or has other files.
    """
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
    """Lock a stale directory; returns the descriptor that holds the lock, for the caller to close.

    `None` if it is in use, or younger than `_MIN_AGE`. Raises `OSError`.
    """
    is_new = time.time() - os.lstat(directory).st_ctime < _MIN_AGE
    return None if is_new else lock_directory(directory)
