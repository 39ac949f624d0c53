"""The private runtime directory with one socket for each conductor of this user, `PID.sock`."""

from __future__ import annotations

import errno
import os
import socket
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from conductor.log import get_logger
from conductor.network.peer_user import is_same_user
from conductor.places import runtime_directory

__all__ = [
    "PrivateDirectoryError",
    "connect",
    "private_directory",
    "private_runtime_directory",
    "socket_path",
    "sockets",
    "usable_path",
]

log: Final = get_logger(component="control")
_MAX_PATH: Final = 100
"""Bytes of a path that fit into the address of a Unix socket."""
_TIMEOUT: Final = 5.0


class PrivateDirectoryError(OSError):
    """A directory belongs to another user, or others have access to it."""


def private_directory(path: Path) -> Path:
    """Create a directory of mode 0700, unless it exists. Raises `OSError` if others have access."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with suppress(FileExistsError):
        path.mkdir(mode=0o700)
    _check_private(path)
    return path


def private_runtime_directory() -> Path:
    """Create the directory for sockets. Raises `OSError` also if another user may replace it: its
    parent can be a directory in `/tmp` that another user has made."""
    path = runtime_directory()
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    found = path.parent.stat()
    is_shared = found.st_mode & stat.S_IWOTH and not found.st_mode & stat.S_ISVTX
    if found.st_uid not in (0, os.geteuid()) or is_shared:
        text = "other users may replace directories in it"
        raise PrivateDirectoryError(errno.EPERM, text, str(path.parent))
    return private_directory(path)


def _check_private(path: Path) -> None:
    """Raise `OSError` if the directory is missing, or others have access to it."""
    found = path.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid() or found.st_mode & 0o077:
        raise PrivateDirectoryError(0, "not a private directory of this user", str(path))


def socket_path(pid: int) -> Path:
    return runtime_directory() / f"{pid}.sock"


def sockets() -> Iterator[tuple[int, Path]]:
    """The sockets in the directory, with the process ids of their conductors."""
    try:
        directory = runtime_directory()
        _check_private(directory)
        names = sorted(os.listdir(directory))
    except FileNotFoundError:
        return
    except OSError as exc:
        log.warning("sockets of conductors not read", error=str(exc))
        return
    for name in names:
        number = name.removesuffix(".sock")
        if number.isdigit() and number != name:
            yield int(number), directory / name


@contextmanager
def usable_path(path: Path) -> Iterator[str]:
    """A path for the address of a Unix socket: through a descriptor of the directory if the path is
    too long."""
    if len(os.fsencode(path)) <= _MAX_PATH:
        yield str(path)
        return
    directory = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield f"/proc/self/fd/{directory}/{path.name}"
    finally:
        os.close(directory)


def connect(path: Path, timeout: float = _TIMEOUT) -> socket.socket:
    """Connect to a conductor. `timeout` is in seconds, for each operation.

    Raises `OSError`; `ConnectionRefusedError` if it has ended, `PermissionError` if another user
    listens there.
    """
    connection = socket.socket(socket.AF_UNIX)
    connection.settimeout(timeout)
    try:
        with usable_path(path) as address:
            connection.connect(address)
        if not is_same_user(connection):
            raise PermissionError(errno.EPERM, "another user listens there", str(path))
    except BaseException:
        connection.close()
        raise
    return connection
