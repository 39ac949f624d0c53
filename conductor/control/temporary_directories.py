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
from conductor.places import VIEW_PREFIX

__all__ = ["remove_stale_directories"]

_FILES: Final = {"acp-mcp-": "s", VIEW_PREFIX: "trace.jsonl*"}
"""Glob patterns of the files that conductors create, by prefix of the directory's name."""
_BRIDGE_ROOT: Final = "/tmp"
"""Fallback of the bridge if the usual path is too long for a socket address."""
_MIN_AGE: Final = 1.0
"""Seconds after its creation before a directory without a lock is stale."""


def remove_stale_directories() -> Iterator[str]:
    """Remove the stale directories; yields the path of each. One with other files stays."""
    for root in dict.fromkeys((tempfile.gettempdir(), _BRIDGE_ROOT)):
        with suppress(OSError), os.scandir(root) as entries:
            for entry in entries:
                pattern = next((_FILES[each] for each in _FILES if entry.name.startswith(each)), "")
                if pattern and entry.is_dir(follow_symlinks=False):
                    with suppress(OSError):
                        if _remove_stale(entry.path, pattern):
                            yield entry.path


def _remove_stale(directory: str, pattern: str) -> bool:
    """Raises `OSError`, also if the directory has other files."""
    is_new = time.time() - os.lstat(directory).st_ctime < _MIN_AGE
    if is_new or (lock := lock_directory(directory)) is None:
        return False
    try:
        for name in os.listdir(lock):
            if fnmatch(name, pattern):
                os.unlink(name, dir_fd=lock)
        os.rmdir(directory)
    finally:
        os.close(lock)
    return True
