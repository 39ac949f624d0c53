"""Binary distributions: an archive for each platform, with its SHA-256, unpacked into a directory.

A registry may give the checksum. Otherwise that of the first download is pinned (trust on first
use), for the current platform only: `lock` on another platform adds the checksum for that one.

Nothing is written outside the directory: absolute paths, `..`, links that lead out, devices and set
user ids are refused (`tarfile`'s data filter, the same checks for zip), and nothing is written
through a link. The data filter resolves links with `realpath`, which gives up at paths that are too
long: in Python before 3.11.13, 3.12.11 and 3.13.4 a chain of links leads out (CVE-2025-4517). The
check of links here resolves no path, so that there is nothing to deceive.

Extended headers (pax) of a tar are read whole, however long they are: an archive that fills the
memory in this way ends its own installation, and the program in it could do the same.
"""

from __future__ import annotations

import hashlib
import lzma
import os
import shutil
import stat
import struct
import tarfile
import tempfile
import zipfile
import zlib
from pathlib import Path, PurePosixPath
from typing import Final
from urllib.parse import urlsplit

import msgspec

from conductor.errors import RegistryError
from conductor.files import open_own
from conductor.registry.download import check_url, display_url, fetch_file
from conductor.registry.pins import BinaryPin, digest_of
from conductor.registry.source import Entry
from conductor.registry.store import InstalledPackage, store_directory

__all__ = [
    "discard_download",
    "install_binary",
    "pin_binary",
    "program_in",
    "unpack",
    "with_checksum",
]

_TAR: Final = (".tar.gz", ".tgz", ".tar.bz2", ".tbz2", ".tar.xz", ".txz", ".tar")
_INSTALLERS: Final = (".dmg", ".pkg", ".deb", ".rpm", ".msi", ".appimage")
_MAX_UNPACKED: Final = 2 << 30
"""Maximum bytes that an archive fills on the disk, with a block more for each member."""
_BLOCK: Final = 4096
_UNUSABLE: Final = (
    *(tarfile.TarError, zipfile.BadZipFile, zlib.error, lzma.LZMAError, struct.error),
    *(EOFError, OSError, RuntimeError, ValueError, LookupError, ArithmeticError),
)
"""Exceptions of the libraries for archives that are damaged or malicious."""


def pin_binary(entry: Entry, platform: str) -> BinaryPin:
    """Pin the archives of an entry, with the checksum for this platform. Raises `RegistryError`."""
    pin = BinaryPin(version=entry.version, targets=entry.distribution.binary)
    return with_checksum(entry.id, pin, platform)


def with_checksum(name: str, pin: BinaryPin, platform: str) -> BinaryPin:
    """The pin with the checksum for this platform; downloads the archive if it is unknown."""
    target = pin.target(name, platform)
    if target.sha256 is not None:
        return pin
    discard_download(pin, platform)
    locked = msgspec.structs.replace(target, sha256=_download(target.archive).sha256)
    return msgspec.structs.replace(pin, targets={**pin.targets, platform: locked})


def install_binary(name: str, pin: BinaryPin, platform: str, directory: Path) -> InstalledPackage:
    """Download the archive of this platform, compare its checksum and unpack it.

    Raises `RegistryError`, also if the pin has no checksum for the platform.
    """
    target = pin.target(name, platform)
    if target.sha256 is None:
        message = f"the lock file has no checksum of `{name}` for this platform, {platform}"
        help = "run `acp-conductor lock` on this platform, and keep its result"
        raise RegistryError(message, help)
    download = _download(target.archive)
    try:
        if download.sha256 != target.sha256.lower():
            raise RegistryError(
                f"{display_url(target.archive)} has the SHA-256 {download.sha256}, not the pinned"
                f" {target.sha256}: refused",
                "the archive is not the one that was pinned: do not use it before you know why."
                " `acp-conductor update` pins what the registry has now",
            )
        unpack(download.path, target.archive, directory, target.cmd)
    finally:
        download.path.unlink(missing_ok=True)
    return InstalledPackage(program_in(directory, target.cmd))


def discard_download(pin: BinaryPin, platform: str) -> None:
    """Remove the archive that `pin_binary` has downloaded and nothing has installed."""
    target = pin.targets.get(platform)
    if target is not None:
        _download_path(target.archive).unlink(missing_ok=True)


class _Download(msgspec.Struct):
    path: Path
    sha256: str


def _download(url: str) -> _Download:
    """Download to the store, or reuse the file: that of `pin_binary` serves `install_binary`."""
    check_url(url)
    path = _download_path(url)
    if path.exists():
        with os.fdopen(open_own(path, os.O_RDONLY), "rb") as file:
            return _Download(path, hashlib.file_digest(file, "sha256").hexdigest())
    with tempfile.TemporaryDirectory(dir=path.parent) as directory:
        draft = Path(directory) / "download"
        checksum = fetch_file(url, draft)
        draft.rename(path)
    return _Download(path, checksum)


def _download_path(url: str) -> Path:
    return store_directory("staging") / f"{digest_of(url)[:32]}.download"


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
    with tarfile.open(archive) as tar:
        size = 0
        for member in tar:
            if member.size < 0 or member.sparse is not None:
                raise RegistryError(f"a member of unknown size in the archive: {member.name!r}")
            _check_size(size := size + member.size + _BLOCK)
            tarfile.data_filter(member, str(directory))
            _check_links(directory, member)
            tar.extract(member, directory, filter="data")


def _unpack_zip(archive: Path, directory: Path) -> None:
    with zipfile.ZipFile(archive) as bundle:
        _check_size(sum(each.file_size + _BLOCK for each in bundle.infolist()))
        for member in bundle.infolist():
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


def _check_size(size: int) -> None:
    if size > _MAX_UNPACKED:
        raise RegistryError(f"it unpacks to more than {_MAX_UNPACKED >> 30} GiB: refused")


def _check_links(directory: Path, member: tarfile.TarInfo) -> None:
    """Raise `RegistryError` unless a member that the data filter accepts can be extracted.

    No part of its path may be a link. As this holds for each member, a link leads out of the
    directory only if it begins with more `..` than its path has parents, or has `..` behind a name.
    """
    path = PurePosixPath(member.name.lstrip("/"))
    if ".." in path.parts or _has_link(directory, path):
        raise RegistryError(f"the archive writes through a link: {member.name!r}")
    if member.issym():
        target = PurePosixPath(member.linkname)
        parts = target.parts
        up = next((n for n, part in enumerate(parts) if part != ".."), len(parts))
        if up >= len(path.parts) or ".." in parts[up:] or target.is_absolute():
            raise RegistryError(f"the archive has a link that may lead out: {member.name!r}")
    if member.islnk():
        target = PurePosixPath(member.linkname)
        if ".." in target.parts or _has_link(directory, target) or not _is_file(directory / target):
            raise RegistryError(f"the archive has a link to no file of it: {member.name!r}")


def _has_link(directory: Path, inner: PurePosixPath) -> bool:
    """Whether a part of a path in the directory is a symbolic link."""
    place = os.fspath(directory)
    for part in inner.parts:
        place = os.path.join(place, part)
        try:
            found = os.lstat(place)
        except FileNotFoundError:
            return False
        if stat.S_ISLNK(found.st_mode):
            return True
    return False


def _is_file(path: Path) -> bool:
    try:
        return stat.S_ISREG(os.lstat(path).st_mode)
    except FileNotFoundError:
        return False
