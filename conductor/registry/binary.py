"""Binary distributions: an archive for each platform, with its SHA-256.

A registry may give the checksum. Otherwise that of the first download is pinned (trust on first
use), for the current platform only: `lock` on another platform adds the checksum for that one.
"""

from __future__ import annotations

import hashlib
import os
import tempfile
from pathlib import Path

import msgspec

from conductor.errors import RegistryError
from conductor.files import open_own
from conductor.registry.archive import program_in, unpack
from conductor.registry.download import check_url, display_url, fetch_file
from conductor.registry.entries import Entry
from conductor.registry.pins import BinaryPin, digest_of
from conductor.registry.store import InstalledPackage, store_directory

__all__ = ["discard_download", "install_binary", "pin_binary", "with_checksum"]


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
