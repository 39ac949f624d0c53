"""Read a file that another person may have written: a lock file, or a registry.

A named pipe or a device is not read: it would block, or never end.
"""

from __future__ import annotations

import os
import stat

from conductor.errors import RegistryError

__all__ = ["read_regular_file"]


def read_regular_file(path: str, limit: int, what: str) -> tuple[bytes, float]:
    """The content and the time of the last change. Raises `OSError`, and `RegistryError` if it is
    no regular file or has more than `limit` bytes. `what` it is, for the message."""
    with open(path, "rb", opener=_open_at_once) as file:
        found = os.fstat(file.fileno())
        if not stat.S_ISREG(found.st_mode):
            raise RegistryError(f"{what} {path} is no regular file")
        data = file.read(limit + 1)
    if len(data) > limit:
        raise RegistryError(f"{what} {path} is larger than {limit >> 20} MiB")
    return data, found.st_mtime


def _open_at_once(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NONBLOCK)
