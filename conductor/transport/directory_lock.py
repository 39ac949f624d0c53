"""Locks on private directories: the kernel releases them when the process ends.

Process ids are not compared: a directory without a lock was left by a killed conductor.
"""

from __future__ import annotations

import os

__all__ = ["lock_directory"]


def lock_directory(directory: str, *, new: bool = False) -> int | None:
    """A descriptor with the lock of a directory; `None` if another process has it, or if the
    directory is not private to this user.

    The mode of a new directory is set first, independent of the umask and the parent directory.
    Raises `OSError`.
    """
    import fcntl

    fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        if new:
            os.fchmod(fd, 0o700)
        status = os.fstat(fd)
        if status.st_uid == os.geteuid() and not status.st_mode & 0o077:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return fd
    except BlockingIOError:
        pass
    except OSError:
        os.close(fd)
        raise
    os.close(fd)
    return None
