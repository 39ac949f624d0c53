"""Files of a project, read and written while another process may exchange them.

Every path is relative to the project's directory and opened part by part, without following a link:
a directory that is replaced by a link meanwhile is an error, and nothing outside of the project is
read, written or deleted. These functions block.
"""

from __future__ import annotations

import errno
import os
import secrets
import stat
from collections.abc import Collection, Iterator
from contextlib import suppress
from typing import Final

import attrs
import msgspec

from conductor.files import open_own, open_parent, open_regular

__all__ = ["FileContent", "Stamp", "read_file", "remove_file", "unsaved_files", "write_file"]

_DIRECTORY: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_MAX_DEPTH: Final = 200
"""Directories in each other, of one that a file replaces."""
LINK: Final = "120000"
EXECUTABLE: Final = "100755"
FILE: Final = "100644"


class Stamp(msgspec.Struct, frozen=True, array_like=True):
    """What changes with a file: while it is the same, so is the content."""

    mtime: int
    ctime: int
    size: int
    inode: int
    mode: int

    @classmethod
    def of(cls, found: os.stat_result) -> Stamp:
        return cls(found.st_mtime_ns, found.st_ctime_ns, found.st_size, found.st_ino, found.st_mode)


@attrs.frozen
class FileContent:
    """A file as it was read. `mode` is git's; the content of a link is its target."""

    mode: str
    data: bytes
    stamp: Stamp


def read_file(root: str, path: str, limit: int) -> FileContent:
    """Read a regular file of at most `limit` bytes, or a link. Raises `OSError`."""
    with open_parent(root, path) as (parent, name):
        found = os.stat(name, dir_fd=parent, follow_symlinks=False)
        if stat.S_ISLNK(found.st_mode):
            target = os.readlink(name, dir_fd=parent)
            return FileContent(LINK, os.fsencode(target), Stamp.of(found))
        if not stat.S_ISREG(found.st_mode):  # opening a device may do something
            raise OSError(errno.EINVAL, "it is not a regular file", path)
        with open(open_regular(name, os.O_RDONLY | os.O_NOFOLLOW, dir_fd=parent), "rb") as file:
            found = os.fstat(file.fileno())
            data = file.read(limit + 1)
    if len(data) > limit:
        raise OSError(errno.EFBIG, os.strerror(errno.EFBIG), path)
    return FileContent(EXECUTABLE if found.st_mode & 0o100 else FILE, data, Stamp.of(found))


def write_file(root: str, path: str, mode: str, data: bytes, saved: Collection[str]) -> None:
    """Write a file or a link, in place of what is there; directories on the way are created.

    A directory in its place is removed if it has only files that are `saved`. Raises `OSError`.
    """
    _remove_from_way(root, path)
    with open_parent(root, path, create=True) as (parent, name):
        draft = f".{secrets.token_hex(8)}.rewind"
        try:
            _write_draft(parent, draft, mode, data)
            _move(parent, draft, name, path, saved)
        except BaseException:
            with suppress(FileNotFoundError):
                os.unlink(draft, dir_fd=parent)
            raise


def remove_file(root: str, path: str) -> bool:
    """Delete a file, and the directories that are empty then; whether it was there."""
    try:
        with open_parent(root, path) as (parent, name):
            os.unlink(name, dir_fd=parent)
    except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
        return False
    with suppress(OSError):  # not empty
        while path := os.path.dirname(path):
            with open_parent(root, path) as (parent, name):
                os.rmdir(name, dir_fd=parent)
    return True


def unsaved_files(root: str, path: str, saved: Collection[str]) -> Iterator[str]:
    """The files of a directory that are not among the saved ones; none if it is no directory, or
    cannot be read."""
    with suppress(OSError), open_parent(root, path) as (parent, name):
        yield from _unsaved(parent, name, path, saved)


def _write_draft(parent: int, draft: str, mode: str, data: bytes) -> None:
    if mode == LINK:
        os.symlink(os.fsdecode(data), draft, dir_fd=parent)
        return
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL
    bits = 0o777 if mode == EXECUTABLE else 0o666
    with open(open_own(draft, flags, bits, dir_fd=parent), "wb") as file:
        file.write(data)


def _move(parent: int, draft: str, name: str, path: str, saved: Collection[str]) -> None:
    try:
        os.rename(draft, name, src_dir_fd=parent, dst_dir_fd=parent)
    except IsADirectoryError:
        _remove_directory(parent, name, path, saved)
        os.rename(draft, name, src_dir_fd=parent, dst_dir_fd=parent)


def _remove_from_way(root: str, path: str) -> None:
    """Delete a file or a link that is where a directory of the path has to be."""
    parts = path.split(os.sep)
    with suppress(FileNotFoundError, NotADirectoryError):
        for count in range(1, len(parts)):
            with open_parent(root, os.sep.join(parts[:count])) as (parent, name):
                found = os.stat(name, dir_fd=parent, follow_symlinks=False)
                if not stat.S_ISDIR(found.st_mode):
                    os.unlink(name, dir_fd=parent)
                    return


def _remove_directory(parent: int, name: str, path: str, saved: Collection[str]) -> None:
    for unsaved in _unsaved(parent, name, path, saved):
        raise FileExistsError(errno.EEXIST, "a file without a copy is in the way", unsaved)
    directory = os.open(name, _DIRECTORY, dir_fd=parent)
    try:
        for entry in list(os.scandir(directory)):
            inside = os.path.join(path, entry.name)
            if entry.is_dir(follow_symlinks=False):
                _remove_directory(directory, entry.name, inside, saved)
            elif inside in saved:
                os.unlink(entry.name, dir_fd=directory)
    finally:
        os.close(directory)
    os.rmdir(name, dir_fd=parent)


def _unsaved(parent: int, name: str, path: str, saved: Collection[str]) -> Iterator[str]:
    if path.count(os.sep) > _MAX_DEPTH:
        yield path
        return
    directory = os.open(name, _DIRECTORY, dir_fd=parent)
    try:
        for entry in list(os.scandir(directory)):
            inside = os.path.join(path, entry.name)
            if entry.is_dir(follow_symlinks=False):
                yield from _unsaved(directory, entry.name, inside, saved)
            elif inside not in saved:
                yield inside
    finally:
        os.close(directory)
