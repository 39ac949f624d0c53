"""Limit on what a package manager writes: the size of its directory, and of each file it makes.

npm and uv download what a lock file names, which says checksums and no sizes. A file may have
`MAX_ENTRY_BYTES` at most (a limit of the process, which also holds for caches of the package
manager), and so may its directory in the store, with at most `MAX_ENTRY_FILES` files.
"""

from __future__ import annotations

import os
import resource
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

__all__ = ["MAX_ENTRY_BYTES", "MAX_ENTRY_FILES", "SizeWatch", "limit_file_size"]

MAX_ENTRY_BYTES: Final = 2 << 30
MAX_ENTRY_FILES: Final = 200_000
_INTERVAL: Final = 0.5
"""Seconds between two measurements; more if one takes long."""
_SHARE: Final = 10
"""A measurement takes at most this fraction of the time."""


def limit_file_size() -> None:
    """Limit the size of files that this process writes; called in the child before `exec`."""
    _, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    if hard == resource.RLIM_INFINITY or hard > MAX_ENTRY_BYTES:
        resource.setrlimit(resource.RLIMIT_FSIZE, (MAX_ENTRY_BYTES, hard))


class SizeWatch:
    """Measures a directory in a thread, and calls `stop` once it is too large.

    `excess` then says what is exceeded, as in "2 GiB".
    """

    def __init__(self, directory: Path, stop: Callable[[], None]) -> None:
        self.excess: str | None = None
        self._directory = directory
        self._stop = stop
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> SizeWatch:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()
        if self.excess is None:
            self._measure()

    def _watch(self) -> None:
        pause = _INTERVAL
        while not self._ended.wait(pause):
            begin = time.monotonic()
            self._measure()
            if self.excess is not None:
                self._stop()
                return
            pause = max(_INTERVAL, _SHARE * (time.monotonic() - begin))

    def _measure(self) -> None:
        size = files = 0
        for directory, _, names in os.walk(self._directory, onerror=None):
            files += len(names)
            size += sum(_size(os.path.join(directory, name)) for name in names)
            if size > MAX_ENTRY_BYTES:
                self.excess = f"{MAX_ENTRY_BYTES >> 20} MiB"
                return
            if files > MAX_ENTRY_FILES:
                self.excess = f"{MAX_ENTRY_FILES} files"
                return


def _size(path: str) -> int:
    try:
        return os.lstat(path).st_size
    except OSError:  # it is gone
        return 0
