"""Read a file that only this user can have written."""

from __future__ import annotations

import errno
import os
import shlex
import stat

from conductor.files import open_regular

__all__ = ["UnsafeFile", "read_own_file"]

MAX_BYTES = 256 * 1024
_REPLACE = "put a file there that you can read"


class UnsafeFile(Exception):
    """Others can decide what the file contains, or it cannot be read; the text is the reason,
    without the path, and the remedy."""

    def __init__(self, reason: str, remedy: str) -> None:
        super().__init__(f"{reason}; {remedy}")
        self.reason = reason
        self.remedy = remedy


def read_own_file(path: str, *, follows_links: bool = False) -> bytes:
    """The bytes of a regular file of this user, or of root, that others cannot write.

    Checked is the open file, so that another one cannot take its place. A pipe is not waited for.
    Raises `UnsafeFile`, and `FileNotFoundError`.
    """
    try:
        descriptor = open_regular(path, os.O_RDONLY if follows_links else os.O_NOFOLLOW)
    except FileNotFoundError:
        raise
    except OSError as exc:
        if exc.errno == errno.ELOOP:
            raise UnsafeFile(f"{exc.strerror}", "put the file itself there") from None
        raise UnsafeFile(f"it cannot be read: {exc.strerror}", _REPLACE) from None
    with os.fdopen(descriptor, "rb") as file:
        found = os.fstat(descriptor)
        if found.st_uid not in (0, os.geteuid()):
            raise UnsafeFile("it belongs to another user", "copy it, or chown it")
        if found.st_mode & stat.S_IWOTH:
            remedy = f"chmod go-w {shlex.quote(path)}"
            raise UnsafeFile("every user of this machine can change it", remedy)
        data = file.read(MAX_BYTES + 1)
    if len(data) > MAX_BYTES:
        raise UnsafeFile(f"it is longer than {MAX_BYTES // 1024} KiB", "make it shorter")
    return data
