"""Where the socket for shims is: a directory of our own (mode 0700), gone when we are.

A conductor that is killed cannot clear up after itself, so the next one that makes a place does it.
Whose place it is shows a lock on the directory, which the kernel takes away with its owner; so
nobody has to trust a process id, and a place in use is never touched. Only what we make ourselves
is removed: a socket called `s`, and its directory if that is empty then.

The mode is set on the open directory, whatever the umask and the parent directory (setgid) made of
it, and is then looked at: it must be ours, with no permission for group and others.
"""

from __future__ import annotations

import errno
import os
import tempfile
from contextlib import suppress
from typing import Final

import attrs

__all__ = ["SocketDirectory"]

_PREFIX: Final = "acp-mcp-"
_SOCKET: Final = "s"
_MAX_ATTEMPTS: Final = 8
_MAX_PATH: Final = 100
"""sun_path has 104 bytes on some systems."""


@attrs.define(eq=False)
class SocketDirectory:
    """A directory, locked for as long as it is ours."""

    directory: str
    _lock: int

    @classmethod
    def make(cls) -> SocketDirectory:
        """A new place; what killed conductors left is cleared away. Raises `OSError`."""
        root = tempfile.gettempdir()
        if not _fits_socket_address(root):
            root = "/tmp"
        _remove_stale(root)
        for _ in range(_MAX_ATTEMPTS):
            directory = tempfile.mkdtemp(prefix=_PREFIX, dir=root)
            try:
                lock = _open_locked(directory, new=True)
            except FileNotFoundError:
                continue  # another conductor took it for one that was left
            except OSError:
                with suppress(OSError):
                    os.rmdir(directory)
                raise
            if lock is not None and os.path.isdir(directory):
                return cls(directory, lock)
            if lock is not None:
                os.close(lock)
            with suppress(OSError):
                os.rmdir(directory)
        raise OSError(
            errno.EAGAIN, f"no directory for the MCP bridge could be made and locked in {root}"
        )

    @property
    def path(self) -> str:
        """Where the socket goes."""
        return os.path.join(self.directory, _SOCKET)

    def remove(self) -> None:
        _remove(self.directory, self._lock)


def _fits_socket_address(root: str) -> bool:
    """Whether a place there fits a socket's address, and the JSON in which agents get it."""
    try:
        size = len(root.encode())
    except UnicodeEncodeError:  # a name that is no UTF-8
        return False
    return size + len(_PREFIX) + 8 + len(_SOCKET) + 2 <= _MAX_PATH


def _remove_stale(root: str) -> None:
    with suppress(OSError), os.scandir(root) as entries:
        for entry in entries:
            if entry.name.startswith(_PREFIX) and entry.is_dir(follow_symlinks=False):
                lock = _try_lock(entry.path)
                if lock is not None:
                    _remove(entry.path, lock)


def _try_lock(directory: str) -> int | None:
    """The lock of a directory that belongs to us and that nobody holds."""
    try:
        return _open_locked(directory, new=False)
    except OSError:
        return None


def _open_locked(directory: str, *, new: bool) -> int | None:
    """An open descriptor with the lock; `None` if it is locked, or not a private directory of ours.

    A new one is made private first. Raises `OSError`.
    """
    import fcntl

    fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
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


def _remove(directory: str, lock: int) -> None:
    with suppress(OSError):
        os.unlink(_SOCKET, dir_fd=lock)
    with suppress(OSError):
        os.rmdir(directory)
    os.close(lock)
