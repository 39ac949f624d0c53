"""The store of installed packages: a private directory of this user, mode 0700.

    agents/packages/NAME/vVERSION/DIGEST-PLATFORM/  one installed pin, with `installed.json`
    agents/pins/KEY.json                            pins made for chain files without a lock file
    agents/lock-files                               paths of the lock files that were used
    agents/registries/KEY.json                      refreshed copies of registries
    agents/staging/, agents/locks/                  installations under way

A package is installed in `staging` and renamed to its place when it is complete, so an interrupted
installation is never used; concurrent installations of the same package are serialized. Any part
may be deleted while nothing runs: packages are installed again, registries fetched again. A pin is
made again with the checksums that its source has then.
"""

from __future__ import annotations

import math
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Final

import msgspec

from conductor.errors import RegistryError
from conductor.files import locked, read_own, replacing, write_own
from conductor.json_values import decode_value
from conductor.places import data_directory
from conductor.registry.pins import BinaryPin, Pin, current_platform

__all__ = [
    "InstalledPackage",
    "find_installed",
    "install_into_store",
    "package_directory",
    "package_key",
    "replace_file",
    "store_directory",
    "store_path",
]

_RECORD: Final = "installed.json"


class InstalledPackage(msgspec.Struct, frozen=True):
    """Content of `installed.json`: how to start a package. Paths are relative to its directory."""

    program: str
    interpreter: tuple[str, ...] = ()
    """Words before the program, such as `node`."""
    needs: tuple[str, ...] = ()
    """Files without which the program cannot start: the virtual environment's Python."""

    def command(self, directory: Path) -> tuple[str, ...]:
        return (*self.interpreter, str(directory / self.program))


def store_path(*parts: str) -> Path:
    """A path in the store; nothing is created."""
    return _root().joinpath(*parts)


def store_directory(*parts: str) -> Path:
    """The store, or a directory in it, created with mode 0700. Raises `RegistryError`."""
    directory = _root()
    try:
        directory.parent.mkdir(parents=True, exist_ok=True)
        directory.mkdir(mode=0o700, exist_ok=True)
        found = directory.stat()
        if found.st_uid != os.geteuid():
            raise RegistryError(f"the store {directory} belongs to another user")
        if found.st_mode & 0o077:
            directory.chmod(0o700)
        directory = directory.joinpath(*parts)
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as exc:
        help = "XDG_DATA_HOME names another directory for data"
        raise RegistryError(f"the store {directory} cannot be used: {exc.strerror}", help) from None
    return directory


def package_directory(name: str, pin: Pin) -> Path:
    """The directory for the files of a pin; it need not exist."""
    version = "".join(char if char.isalnum() or char in ".-+" else "_" for char in pin.version)
    return store_path("packages", name) / f"v{version}" / package_key(pin, name)


def package_key(pin: Pin, name: str = "") -> str:
    """The name of the innermost directory: the digest of the content, and the platform.

    Raises `RegistryError`, with `name`, if there is no archive for this platform.
    """
    platform = current_platform()
    digest = pin.target(name, platform).digest if isinstance(pin, BinaryPin) else pin.digest
    return f"{digest[:32]}-{platform}"


def find_installed(name: str, pin: Pin) -> tuple[Path, InstalledPackage] | None:
    """The directory and the record of an installed pin; None if it is not installed, or damaged:
    the record, the program or its interpreter cannot be read."""
    directory = package_directory(name, pin)
    try:
        data = read_own(directory / _RECORD)
        record = decode_value(data, type=InstalledPackage)
    except (OSError, msgspec.DecodeError):
        return None
    if not all(os.access(directory / path, os.R_OK) for path in (record.program, *record.needs)):
        return None
    return directory, record


def install_into_store(
    name: str, pin: Pin, install: Callable[[Path], InstalledPackage]
) -> tuple[Path, InstalledPackage]:
    """The directory and the record of a pin; unless it is installed, `install` fills an empty
    directory, which is moved to its place if that succeeds.

    Blocks while another process installs the same pin.
    """
    target = package_directory(name, pin)
    with _lock(f"{name}-{target.name}"):
        if (found := find_installed(name, pin)) is not None:
            return found
        _remove(target)  # incomplete: its interpreter or its program is gone
        # The name is fixed, so that the remains of an interrupted installation are found.
        directory = store_directory("staging") / f"{name}-{target.name}"
        _remove(directory)
        directory.mkdir(mode=0o700)
        try:
            record = install(directory)
            write_own(directory / _RECORD, msgspec.json.encode(record))
            store_directory("packages", name, target.parent.name)
            os.rename(directory, target)
        except BaseException:
            _remove(directory)
            raise
    return target, record


def replace_file(path: Path, data: bytes) -> None:
    """Replace a file of the store atomically. Raises `RegistryError` and `OSError`."""
    store_directory(*path.relative_to(_root()).parent.parts)
    with replacing(path) as file:
        file.write(data)


@contextmanager
def _lock(name: str) -> Iterator[None]:
    with ExitStack() as stack:
        try:
            stack.enter_context(locked(_lock_path(name), 0))
        except BlockingIOError:
            print(f"acp-conductor: {name} is being installed; waiting", file=sys.stderr)
            stack.enter_context(locked(_lock_path(name), math.inf))
        yield


def _lock_path(name: str) -> Path:
    return store_directory("locks") / f"{name}.lock"


def _remove(directory: Path) -> None:
    import shutil

    with suppress(FileNotFoundError):
        shutil.rmtree(directory)


def _root() -> Path:
    return Path(data_directory(), "agents")
