"""The private runtime directory with one socket for each conductor of this user, `PID.sock`."""

from __future__ import annotations

import os
import socket
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

__all__ = [
    "PrivateDirectoryError",
    "connect",
    "private_directory",
    "runtime_directory",
    "socket_path",
    "sockets",
    "usable_path",
]

_MAX_PATH: Final = 100
"""Bytes of a path that fit into the address of a Unix socket."""
_TIMEOUT: Final = 5.0


class PrivateDirectoryError(OSError):
    """A directory belongs to another user, or others have access to it."""


def runtime_directory() -> Path:
    """The directory for sockets; it need not exist."""
    import warnings

    from platformdirs import user_runtime_path

    with warnings.catch_warnings():  # of a directory in the environment that others can read
        warnings.simplefilter("ignore")
        return user_runtime_path("acp-conductor", appauthor=False)


def private_directory(path: Path) -> Path:
    """Create a directory of mode 0700, unless it exists. Raises `OSError` if others have access."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with suppress(FileExistsError):
        path.mkdir(mode=0o700)
    _check_private(path)
    return path


def _check_private(path: Path) -> None:
    """Raise `OSError` if the directory is missing, or others have access to it."""
    found = path.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid() or found.st_mode & 0o077:
        raise PrivateDirectoryError(0, "not a private directory of this user", str(path))


def socket_path(pid: int) -> Path:
    return runtime_directory() / f"{pid}.sock"


def sockets() -> Iterator[tuple[int, Path]]:
    """The sockets in the directory, with the process ids of their conductors."""
    directory = runtime_directory()
    try:
        _check_private(directory)
        names = sorted(os.listdir(directory))
    except OSError:
        return
    for name in names:
        number, dot, suffix = name.partition(".")
        if number.isdigit() and dot and suffix == "sock":
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

    Raises `OSError`; `ConnectionRefusedError` if it has ended.
    """
    connection = socket.socket(socket.AF_UNIX)
    connection.settimeout(timeout)
    try:
        with usable_path(path) as address:
            connection.connect(address)
    except BaseException:
        connection.close()
        raise
    return connection
