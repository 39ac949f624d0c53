"""What proxies do on this machine for an agent, in place of a client that cannot: text files inside
the directories of a session, read and written (blocking).

A path is resolved as the operating system resolves it, and must then lie in one of the directories.
It is opened from there part by part without following links, so that a link that is put in its
place meanwhile leads nowhere. Only regular files are opened, never devices, pipes or files of
`/proc`. A file is replaced at once, with its permissions, or stays as it was. All errors are
`RequestError`.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import BinaryIO, Final

from conductor.error_codes import (
    INTERNAL_ERROR,
    INVALID_PARAMS,
    RESOURCE_NOT_FOUND,
)
from conductor.files import is_below, open_parent, open_regular, replacing
from conductor.proxy import RequestError, Session
from proxies.shared.paths import real_path

__all__ = ["read_text", "resolved_inside", "session_directories", "write_text"]

_MAX_TEXT: Final = 8 * 1024 * 1024
"""Bytes that one request reads."""
_MAX_SCANNED: Final = 1024 * 1024 * 1024
"""Bytes that are read to find a line."""
_PIECE: Final = 1024 * 1024
"""Bytes of a line that are read at once."""
_NOT_ON_DISK: Final = ("/proc", "/sys", "/dev")


def read_text(
    path: str, directories: Sequence[str], *, line: int | None = None, limit: int | None = None
) -> str:
    """The lines of a file from `line` on, which counts from 1, and at most `limit` of them. A line
    keeps its end. There is no text after the last line."""
    with _errors(path), _parent(path, directories, create=False) as (directory, name):
        if (found := _regular(path, name, directory)) is None:
            raise FileNotFoundError
        descriptor = open_regular(name, os.O_RDONLY | os.O_NOFOLLOW, dir_fd=directory)
        with os.fdopen(descriptor, "rb") as file:
            if not os.path.samestat(found, os.fstat(file.fileno())):
                raise RequestError(INTERNAL_ERROR, f"`{path}` has just been replaced")
            data = _lines(path, file, max(line or 1, 1), limit)
    try:
        return data.decode()
    except UnicodeDecodeError as exc:
        where = "" if line is not None and line > 1 else f" at byte {exc.start}"
        raise RequestError(INVALID_PARAMS, f"`{path}` is not text in UTF-8{where}") from None


def write_text(path: str, directories: Sequence[str], content: str) -> None:
    """Write a whole file; create it, with its directories, if it does not exist."""
    try:
        data = content.encode()
    except UnicodeEncodeError:
        raise RequestError(INVALID_PARAMS, f"The text for `{path}` is not Unicode") from None
    with _errors(path), _parent(path, directories, create=True) as (directory, name):
        old = _regular(path, name, directory)
        if old is not None and not os.access(name, os.W_OK, dir_fd=directory):
            raise PermissionError(0, "Permission denied")
        mode = None if old is None else stat.S_IMODE(old.st_mode)
        owner = None if old is None else (old.st_uid, old.st_gid)
        with replacing(name, mode, owner, dir_fd=directory) as file:
            file.write(data)


def session_directories(session: Session) -> list[str]:
    """The directories of the user's session, as the client has set it up: what an agent tells of a
    subagent's does not count."""
    user = session.user_session
    if user.opened_by is None:
        return []
    return [each for each in (user.cwd, *user.additional_directories) if each]


def resolved_inside(path: str, directories: Sequence[str]) -> tuple[str, str]:
    """The directory, without links, that a path lies in, and the path, without links. Raises
    `RequestError`, also if the path cannot be followed or lies elsewhere."""
    with _errors(path):
        return _resolved_inside(path, directories)


def _resolved_inside(path: str, directories: Sequence[str]) -> tuple[str, str]:
    if not path.startswith("/"):
        raise RequestError(INVALID_PARAMS, f"`{path}` is not an absolute path")
    parts = path.split("/")
    if ".." in parts[:-1]:
        # As text, `missing/..` and `file/..` would be resolved.
        os.stat("/".join(parts[: len(parts) - 1 - parts[:-1][::-1].index("..")]))
    real = os.path.realpath(path)
    if not any(is_below(real, each) for each in _NOT_ON_DISK):
        for each in directories:
            root = real_path(each)
            if root is not None and is_below(real, root):
                return root, real
    raise RequestError(
        INVALID_PARAMS, f"`{path}` is not in the directories of the session: {_listed(directories)}"
    )


def _listed(directories: Sequence[str]) -> str:
    return ", ".join(directories) or "it has none"


@contextmanager
def _errors(path: str) -> Iterator[None]:
    """Raise errors of the operating system as errors of the request."""
    try:
        yield
    except FileNotFoundError:
        raise RequestError(RESOURCE_NOT_FOUND, f"`{path}` does not exist", {"path": path}) from None
    except OSError as exc:
        reason = exc.strerror or str(exc)
        raise RequestError(INTERNAL_ERROR, f"`{path}` cannot be used: {reason}") from None
    except ValueError:  # NUL, or a lone surrogate
        raise RequestError(INVALID_PARAMS, f"`{path!r}` is not a path") from None


@contextmanager
def _parent(path: str, directories: Sequence[str], *, create: bool) -> Iterator[tuple[int, str]]:
    """Open the directory of a path inside of `directories`; yields it and the name in it."""
    root, real = _resolved_inside(path, directories)
    inner = os.path.relpath(real, root)
    if inner == os.curdir or path.endswith(("/", "/.", "/..")):
        raise RequestError(INVALID_PARAMS, f"`{path}` is a directory")
    with open_parent(root, inner, create=create) as found:
        yield found


def _regular(path: str, name: str, directory: int) -> os.stat_result | None:
    """`stat` of a file, without opening it; `None` if it does not exist."""
    try:
        found = os.stat(name, dir_fd=directory, follow_symlinks=False)
    except FileNotFoundError:
        return None
    if not stat.S_ISREG(found.st_mode):
        kind = "a directory" if stat.S_ISDIR(found.st_mode) else "not a regular file"
        raise RequestError(INVALID_PARAMS, f"`{path}` is {kind}")
    return found


def _lines(path: str, file: BinaryIO, first: int, limit: int | None) -> bytes:
    """At most `limit` lines from number `first` on."""
    data, scanned, number = bytearray(), 0, 1
    while limit is None or number < first + limit:
        if not (piece := file.readline(_PIECE)):
            break
        scanned += len(piece)
        if number >= first:
            data += piece
        elif scanned > _MAX_SCANNED:
            raise RequestError(INVALID_PARAMS, f"The line is not in the first GiB of `{path}`")
        if len(data) > _MAX_TEXT:
            text = f"`{path}` has more than {_MAX_TEXT >> 20} MiB to read"
            raise RequestError(INVALID_PARAMS, f"{text}: ask for fewer lines, with `limit`")
        number += piece.endswith(b"\n")
    return bytes(data)
