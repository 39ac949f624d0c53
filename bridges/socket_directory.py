"""Private directory (mode 0700) for the shims' socket, removed when the conductor ends.

The directory of a killed conductor is removed by the next conductor that creates one. The owner
holds a lock on the directory, which the kernel releases when the process ends; so no process ids
are compared, and a directory in use is never removed. Only a socket called `s` is removed, and then
the directory if it is empty.

The mode is set on the open directory, independent of the umask and of the parent directory
(setgid), and is then verified: the directory must belong to this user, without permissions for
group and others.
"""

from __future__ import annotations

import errno
import os
import tempfile
from contextlib import suppress
from typing import Final

import attrs

from conductor.files import lock_directory

__all__ = ["SocketDirectory"]

_PREFIX: Final = "acp-mcp-"
_SOCKET: Final = "s"
_MAX_ATTEMPTS: Final = 8
_MAX_PATH: Final = 100
"""sun_path has 104 bytes on some systems."""


@attrs.define(eq=False)
class SocketDirectory:
    """A locked private directory."""

    directory: str
    _lock: int

    @classmethod
    def make(cls) -> SocketDirectory:
        """Create a directory, and remove those of killed conductors. Raises `OSError`."""
        root = tempfile.gettempdir()
        if not _fits_socket_address(root):
            root = "/tmp"
        _remove_stale(root)
        for _ in range(_MAX_ATTEMPTS):
            directory = tempfile.mkdtemp(prefix=_PREFIX, dir=root)
            try:
                lock = lock_directory(directory, new=True)
            except FileNotFoundError:
                continue  # another conductor removed it as stale
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
        """Path of the socket."""
        return os.path.join(self.directory, _SOCKET)

    def remove(self) -> None:
        _remove(self.directory, self._lock)


def _fits_socket_address(root: str) -> bool:
    """Whether a path there fits into a socket address, and can be written as JSON."""
    try:
        size = len(root.encode())
    except UnicodeEncodeError:  # a name that is not UTF-8
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
    """Return the lock of a stale directory of this user; `None` if it is in use."""
    try:
        return lock_directory(directory)
    except OSError:
        return None


def _remove(directory: str, lock: int) -> None:
    with suppress(OSError):
        os.unlink(_SOCKET, dir_fd=lock)
    with suppress(OSError):
        os.rmdir(directory)
    os.close(lock)
