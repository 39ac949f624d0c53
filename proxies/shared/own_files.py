"""Files of this user that several processes change under a lock. Blocking.

The directory may be one in which others can write, by `directory:` of a chain file: a file that
another user has put there is neither read nor written, and no link is followed. A process that does
not release the lock, because it was stopped or is hostile, is waited for only for a while.
"""

from __future__ import annotations

import errno
import fcntl
import os
import stat
import time
from pathlib import Path
from typing import Final

__all__ = ["lock_file", "open_own"]

_INTERVAL: Final = 0.002
"""Seconds between two attempts."""


def open_own(path: Path, flags: int, mode: int = 0o600) -> int:
    """The descriptor of a regular file of this user. Raises `OSError`."""
    descriptor = os.open(path, flags | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK, mode)
    found = os.fstat(descriptor)
    if stat.S_ISREG(found.st_mode) and found.st_uid == os.geteuid():
        return descriptor
    os.close(descriptor)
    raise PermissionError(errno.EPERM, "is not a regular file of this user", str(path))


def lock_file(descriptor: int, patience: float) -> None:
    """Lock a file. Raises `BlockingIOError` if another process has the lock for so many seconds."""
    end = time.monotonic() + patience
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() >= end:
                raise BlockingIOError(errno.EAGAIN, "another process has locked it") from None
            time.sleep(_INTERVAL)
        else:
            return
