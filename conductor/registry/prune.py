"""Remove packages from the store that are not in use.

In use are the packages of lock files that are known (`uses`) and exist, those of pins without a
lock file that a start has taken in the last 30 days, and those of running programs. Any of the
rest is installed again if it is needed after all.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

import msgspec

from conductor.errors import RegistryError
from conductor.files import read_own
from conductor.json_values import decode_value
from conductor.registry.lock_file import read_lock
from conductor.registry.pins import Pin
from conductor.registry.store import package_key, store_path, try_lock
from conductor.registry.uses import forget_missing, known_lock_files

__all__ = ["PrunedPackage", "prune"]

_UNLOCKED_SECONDS: Final = 30 * 86400.0
_STAGING_SECONDS: Final = 86400.0
"""Age after which a download that no installation has taken is removed."""


class PrunedPackage(msgspec.Struct, frozen=True):
    """A package that was removed, or would be; `size` is in bytes."""

    name: str
    version: str
    size: int


def prune(*, dry_run: bool = False) -> Iterator[PrunedPackage]:
    """Remove what is not in use; with `dry_run`, only list it.

    Raises `RegistryError` if a lock file in use cannot be read: its packages are not known.
    """
    pins = _old_pins()
    used = _used_keys(pins)
    running = _running_commands()
    for directory in sorted(store_path("packages").glob("*/v*/*")):
        if directory.name in used or str(directory) in running:
            continue
        name, version = directory.parts[-3], directory.parts[-2].removeprefix("v")
        package = PrunedPackage(name, version, _size(directory))
        if dry_run or _remove_package(name, directory):
            yield package
    if not dry_run:
        for path in pins:
            path.unlink(missing_ok=True)
        _remove_old_downloads()
        forget_missing()


def _used_keys(old_pins: set[Path]) -> set[str]:
    """The names of the directories of packages that are in use."""
    found = [pin for path in known_lock_files() for pin in read_lock(path).pins.values()]
    for path in store_path("pins").glob("*.json"):
        if path not in old_pins:
            with suppress(OSError, msgspec.DecodeError):
                found.append(decode_value(read_own(path), type=Pin))
    return set(filter(None, map(_key, found)))


def _key(pin: Pin) -> str | None:
    """The name of its directory; `None` without an archive for this platform."""
    try:
        return package_key(pin)
    except RegistryError:
        return None


def _old_pins() -> set[Path]:
    """Pins without a lock file that no start has taken for long."""
    since = time.time() - _UNLOCKED_SECONDS
    return {path for path in store_path("pins").glob("*.json") if path.stat().st_mtime < since}


def _running_commands() -> str:
    """The command lines of all processes that can be seen, as one text."""
    if os.path.isdir("/proc/self"):
        found = []
        for path in Path("/proc").glob("[0-9]*/cmdline"):
            with suppress(OSError):
                found.append(path.read_bytes().replace(b"\0", b" "))
        return os.fsdecode(b"\n".join(found))
    with suppress(OSError, subprocess.SubprocessError):
        words = ["ps", "-A", "-ww", "-o", "command="]
        return subprocess.run(words, capture_output=True, text=True, timeout=30).stdout
    return ""


def _remove_package(name: str, directory: Path) -> bool:
    """Whether it was removed: not if it is being installed."""
    with try_lock(f"{name}-{directory.name}") as locked:
        if not locked:
            return False
        shutil.rmtree(directory)
    with suppress(OSError):  # another version is there
        directory.parent.rmdir()
        directory.parent.parent.rmdir()
    return True


def _remove_old_downloads() -> None:
    """Remove what interrupted installations have left."""
    since = time.time() - _STAGING_SECONDS
    for path in store_path("staging").glob("*"):
        with suppress(OSError):
            if path.lstat().st_mtime > since:
                continue
            if path.is_dir():
                with try_lock(path.name) as locked:
                    if locked:
                        shutil.rmtree(path)
            else:
                path.unlink()


def _size(directory: Path) -> int:
    size = 0
    for folder, _, names in os.walk(directory):
        for name in names:
            with suppress(OSError):
                size += os.lstat(os.path.join(folder, name)).st_size
    return size
