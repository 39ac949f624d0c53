"""Unpack the archive of a binary distribution into an empty directory.

Nothing is written outside the directory: absolute paths, `..`, links that lead out, devices and set
user ids are refused (`tarfile`'s data filter, the same checks for zip), and nothing is written
through a link (`tar_links`). Number and size of the members, and of what describes them, are
bounded.
"""

from __future__ import annotations

import bz2
import gzip
import lzma
import os
import shutil
import stat
import struct
import sys
import tarfile
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path, PurePosixPath
from typing import Any, BinaryIO, Final
from urllib.parse import urlsplit

from conductor.errors import RegistryError
from conductor.registry.download import display_url
from conductor.registry.tar_links import check_links

__all__ = ["program_in", "unpack"]

MAX_MEMBERS: Final = 50_000
MAX_UNPACKED_BYTES: Final = 2 << 30
MAX_READ: Final = 16 << 20
"""Bytes that describe the members, all together, beside `_READ_PER_MEMBER` for each of a tar:
`tarfile` and `zipfile` hold them in memory."""
_READ_PER_MEMBER: Final = 2 << 10
_TAR: Final = (".tar.gz", ".tgz", ".tar.bz2", ".tbz2", ".tar.xz", ".txz", ".tar")
_INSTALLERS: Final = (".dmg", ".pkg", ".deb", ".rpm", ".msi", ".appimage")
_DECOMPRESSORS: Final[dict[bytes, Callable[[Path], Any]]] = {
    b"\x1f\x8b": gzip.open,
    b"BZh": bz2.open,
    b"\xfd7zXZ": lzma.open,
}
_UNUSABLE: Final = (
    *(tarfile.TarError, zipfile.BadZipFile, zlib.error, lzma.LZMAError, struct.error),
    *(EOFError, OSError, RuntimeError, ValueError, LookupError, ArithmeticError),
)
"""Exceptions of the libraries for archives that are damaged or malicious."""


def unpack(archive: Path, url: str, directory: Path, cmd: str) -> None:
    """Unpack an archive; the format is the suffix of the URL's path.

    A file with another suffix is the program itself, stored as `cmd`. Raises `RegistryError`.
    """
    name = urlsplit(url).path.lower()
    if name.endswith(_INSTALLERS):
        raise RegistryError(f"installers are not supported: {display_url(url)}")
    try:
        if name.endswith(_TAR):
            _unpack_tar(archive, directory)
        elif name.endswith(".zip"):
            _unpack_zip(archive, directory)
        else:
            program = directory / _inner(cmd)
            program.parent.mkdir(parents=True, exist_ok=True)
            shutil.move(archive, program)
    except _UNUSABLE as exc:
        raise RegistryError(f"the archive {display_url(url)} cannot be unpacked: {exc}") from None


def program_in(directory: Path, cmd: str) -> str:
    """Make the program executable; returns its path relative to the directory.

    Raises `RegistryError` if it is missing, or a link out of the directory.
    """
    inner = _inner(cmd)
    program = directory / inner
    if not program.is_file():
        raise RegistryError(f"the archive has no program {cmd}")
    if not program.resolve(strict=True).is_relative_to(directory.resolve()):
        raise RegistryError(f"the program {cmd} is a link out of its archive")
    program.chmod(program.stat().st_mode | 0o700)
    return str(inner)


def _inner(cmd: str) -> PurePosixPath:
    path = PurePosixPath(cmd)
    if path.is_absolute() or ".." in path.parts or not path.parts or "\\" in cmd or "\0" in cmd:
        raise RegistryError(f"the program of an archive is a path in it, found {cmd!r}")
    return path


def _unpack_tar(archive: Path, directory: Path) -> None:
    if not hasattr(tarfile, "data_filter"):
        raise RegistryError("archives need Python 3.11.4 or newer, to be unpacked safely")
    budget = _UnpackLimit()
    with _decompressed(archive) as content:
        bounded: Any = _BoundedFile(content)
        with tarfile.open(fileobj=bounded, mode="r:") as tar:
            for member in tar:
                if member.size < 0 or member.sparse is not None:
                    raise RegistryError(f"a member of unknown size in the archive: {member.name!r}")
                budget.spend(member.size)
                tarfile.data_filter(member, str(directory))
                check_links(directory, member)
                bounded.begin_content()
                tar.extract(member, directory, filter="data")
                bounded.begin_headers()


def _unpack_zip(archive: Path, directory: Path) -> None:
    budget = _UnpackLimit()
    with open(archive, "rb") as file:
        bounded: Any = _BoundedFile(file)
        with zipfile.ZipFile(bounded) as bundle:
            bounded.begin_content()
            _extract_zip(bundle, directory, budget)


def _extract_zip(bundle: zipfile.ZipFile, directory: Path, budget: _UnpackLimit) -> None:
    for member in bundle.infolist():
        budget.spend(member.file_size)
        mode = member.external_attr >> 16
        if stat.S_IFMT(mode) not in (0, stat.S_IFREG, stat.S_IFDIR):
            raise RegistryError(f"the archive has a link or a device: {member.filename!r}")
        path = directory / _inner(member.filename)
        if member.is_dir():
            path.mkdir(parents=True, exist_ok=True)
            continue
        path.parent.mkdir(parents=True, exist_ok=True)
        with bundle.open(member) as packed, open(path, "xb") as unpacked:
            shutil.copyfileobj(packed, unpacked)
        os.chmod(path, 0o755 if mode & 0o111 else 0o644)


def _decompressed(archive: Path) -> Any:
    """The file, opened for reading its decompressed content."""
    with open(archive, "rb") as file:
        begin = file.read(6)
    for magic, opened in _DECOMPRESSORS.items():
        if begin.startswith(magic):
            return opened(archive)
    return open(archive, "rb")


class _BoundedFile:
    """A file with bounds for what is read of headers, in all, and for the offset of a seek.

    `tarfile` reads headers, and skips members, by sizes that the archive claims. Raises
    `RegistryError`.
    """

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self.tell = file.tell
        self.seekable = file.seekable
        self._left = MAX_READ
        self._left_for_headers = 0

    def begin_headers(self) -> None:
        self._left = self._left_for_headers + _READ_PER_MEMBER

    def begin_content(self) -> None:
        """No bound: content is copied in small parts, and its size is known."""
        self._left_for_headers, self._left = self._left, sys.maxsize - 1

    def read(self, size: int = -1) -> bytes:
        most = self._left + 1
        found = self._file.read(most if size < 0 else min(size, most))
        self._left -= len(found)
        if self._left < 0:
            limit = MAX_READ >> 20
            raise RegistryError(f"the archive has headers of more than {limit} MiB: refused")
        return found

    def seek(self, offset: int, whence: int = 0) -> int:
        if offset > MAX_UNPACKED_BYTES + (MAX_MEMBERS << 10):
            raise RegistryError("the archive has a member of unknown size: refused")
        return self._file.seek(offset, whence)


class _UnpackLimit:
    """Bounds the number and the size of the members."""

    def __init__(self) -> None:
        self.members = 0
        self.size = 0

    def spend(self, size: int) -> None:
        self.members += 1
        self.size += size
        if self.members > MAX_MEMBERS:
            raise RegistryError(f"the archive has more than {MAX_MEMBERS} members: refused")
        if self.size > MAX_UNPACKED_BYTES:
            limit = MAX_UNPACKED_BYTES >> 30
            raise RegistryError(f"the archive unpacks to more than {limit} GiB: refused")
