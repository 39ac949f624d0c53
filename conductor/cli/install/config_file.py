"""Read and write a configuration file of another program.

A file is replaced atomically and keeps its permission bits; a symbolic link to it stays. If a file
cannot be changed, a `ConfigFileError` says why, and what to do.
"""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Final

import attrs

from conductor.files import read_regular, replacing

__all__ = [
    "ConfigFile",
    "ConfigFileError",
    "delete_config",
    "missing_directories",
    "read_config",
    "remove_empty",
    "write_config",
]

_MAX_BYTES: Final = 16 * 1024 * 1024
_PRINTED: Final = "or run the command without --write and insert what it prints"


class ConfigFileError(Exception):
    """A configuration file cannot be used; the text is for the user."""


@attrs.frozen
class ConfigFile:
    """A file as it was read; `target` is where symbolic links lead, `data` is `None` if missing."""

    path: Path
    target: Path
    data: bytes | None
    mode: int | None

    @property
    def digest(self) -> str | None:
        return None if self.data is None else hashlib.sha256(self.data).hexdigest()

    @property
    def text(self) -> str:
        """The content, "" if the file is missing. Raises `ConfigFileError` if it is not UTF-8."""
        try:
            return (self.data or b"").decode()
        except UnicodeDecodeError as exc:
            line = (self.data or b"").count(b"\n", 0, exc.start) + 1
            byte = f"byte 0x{exc.object[exc.start]:02x}"
            raise ConfigFileError(
                f"{self.path}:{line}: {byte} is not UTF-8; save the file as UTF-8"
            ) from None


def read_config(path: Path) -> ConfigFile:
    """Raises `ConfigFileError`."""
    target = Path(os.path.realpath(path))
    try:
        data, found = read_regular(target, _MAX_BYTES), os.stat(target)
    except FileNotFoundError:
        return ConfigFile(path, target, None, None)
    except OSError as exc:
        raise ConfigFileError(f"{path} cannot be read: {exc.strerror}") from None
    return ConfigFile(path, target, data, stat.S_IMODE(found.st_mode))


def write_config(file: ConfigFile, data: bytes) -> None:
    """Replace the content of a file that has not changed since it was read, or create it.

    Raises `ConfigFileError`.
    """
    _check_unchanged(file)
    parent = file.target.parent
    mode, owner = _new_mode(), None
    try:
        parent.mkdir(parents=True, exist_ok=True)
        if file.mode is not None:
            old = os.stat(file.target)
            mode, owner = file.mode, (old.st_uid, old.st_gid)
        with replacing(file.target, mode, owner) as new:
            new.write(data)
    except OSError as exc:
        raise ConfigFileError(
            f"{file.path} cannot be written: {exc.strerror}; change that, {_PRINTED}"
        ) from None


def missing_directories(path: Path) -> tuple[str, ...]:
    """The directories that `write_config` makes for a file, the innermost first."""
    return tuple(str(parent) for parent in path.parents if not parent.exists())


def remove_empty(directories: Iterable[str | Path]) -> None:
    """Remove directories, the innermost first, as long as they are empty."""
    with suppress(OSError):
        for directory in directories:
            os.rmdir(directory)


def delete_config(file: ConfigFile) -> None:
    """Delete a file that has not changed since it was read. Raises `ConfigFileError`."""
    _check_unchanged(file)
    try:
        file.target.unlink()
    except OSError as exc:
        raise ConfigFileError(f"{file.path} cannot be deleted: {exc.strerror}") from None


def _check_unchanged(file: ConfigFile) -> None:
    if file.mode is not None and not file.mode & stat.S_IWUSR:
        linked = f" (a link to {file.target})" if file.target != file.path.absolute() else ""
        raise ConfigFileError(
            f"{file.path}{linked} is read-only: change what generates it, or make it writable "
            f"(chmod u+w), {_PRINTED}"
        )
    if read_config(file.path).data != file.data:
        raise ConfigFileError(f"{file.path} has changed meanwhile; try again")


def _new_mode() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return 0o666 & ~mask
