"""Lock files: the pins of a chain file, as JSON in `review.lock` beside `review.yaml`.

Written by `acp-conductor lock` and `update`, read at every start. It contains no host of a package
registry, so it is also valid with a mirror.
"""

from __future__ import annotations

import os
from collections.abc import Mapping

import msgspec

from conductor.errors import RegistryError
from conductor.files import check_found, read_regular, replacing
from conductor.json_values import decode_value
from conductor.registry.pins import Pin

__all__ = ["LockFile", "read_lock", "write_lock"]

_HEADING = "made by `acp-conductor lock`; change it with `acp-conductor update`"
_MAX_BYTES = 32 << 20


class LockFile(msgspec.Struct, frozen=True):
    """Content of a lock file: pins by name of the agent or proxy, and the format version."""

    pins: Mapping[str, Pin] = {}
    version: int = 1
    comment: str = _HEADING


def read_lock(path: str, files: Mapping[str, bytes] | None = None) -> LockFile:
    """The lock file, an empty one if it does not exist; with `files`, that among them. Raises
    `RegistryError`."""
    if files is not None and path not in files:
        return LockFile()
    try:
        if files is None:
            check_found(path)
        data = read_regular(path, _MAX_BYTES) if files is None else files[path]
    except (FileNotFoundError, NotADirectoryError):
        return LockFile()
    except OSError as exc:
        raise RegistryError(f"the lock file {path} cannot be read: {exc.strerror}") from None
    try:
        lock = decode_value(data, type=LockFile)
    except msgspec.DecodeError as exc:
        raise _unusable(path, str(exc)) from None
    if lock.version != 1:
        raise _unusable(path, f"its version is {lock.version}, this conductor knows 1")
    return lock


def write_lock(path: str, pins: Mapping[str, Pin]) -> None:
    """Replace the lock file atomically, or remove it if nothing is pinned. Raises `OSError`."""
    if not pins:
        if os.path.exists(path):
            os.unlink(path)
        return
    encoded = msgspec.json.encode(LockFile(dict(sorted(pins.items()))), order="sorted")
    text = msgspec.json.format(encoded, indent=1) + b"\n"
    try:
        mode = os.stat(path).st_mode & 0o777
    except FileNotFoundError:
        mode = 0o644
    with replacing(path, mode) as file:
        file.write(text)


def _unusable(path: str, reason: str) -> RegistryError:
    help = "restore it, or delete it and run `acp-conductor lock` again"
    return RegistryError(f"the lock file {path} is unusable: {reason}", help)
