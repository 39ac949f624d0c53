"""Pins: exact versions with checksums, of a package and its transitive dependencies.

A pin is the entry of a name in a lock file. `digest` identifies the files that are installed for
it, and is part of their path in the store: a lock file that was edited names other files. Arguments
and environment are not part of it.

A lock file has the pins of a chain file, as JSON in `review.lock` beside `review.yaml`: written by
`acp-conductor lock` and `update`, read at every start. It contains no host of a package registry,
so it is also valid with a mirror.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from typing import Any, ClassVar, Final, Literal, TypeAlias

import msgspec

from conductor.errors import RegistryError
from conductor.files import check_found, read_regular, replacing
from conductor.json_values import decode_value

__all__ = [
    "REGISTRY_VARIABLE",
    "BinaryPin",
    "BinaryTarget",
    "LockFile",
    "NpxPin",
    "Pin",
    "UvxPin",
    "current_platform",
    "digest_of",
    "read_lock",
    "write_lock",
]

REGISTRY_VARIABLE: Final = "ACP_CONDUCTOR_REGISTRY"
"""Environment variable: file or URL of the registry, for chain files that name none."""
_MACHINES: Final = {"amd64": "x86_64", "arm64": "aarch64"}
_HEADING: Final = "made by `acp-conductor lock`; change it with `acp-conductor update`"
_MAX_BYTES: Final = 32 << 20


class NpxPin(msgspec.Struct, frozen=True, tag="npx", tag_field="kind", omit_defaults=True):
    """A package of npm. `packages`: the packages of npm's own lock file, with their integrity."""

    package: str
    version: str
    integrity: str
    packages: Mapping[str, Any]
    args: tuple[str, ...] = ()
    env: Mapping[str, str] = {}
    scripts: bool = False
    """Whether the packages' installation scripts run."""

    kind: ClassVar[Literal["npx"]] = "npx"

    @property
    def digest(self) -> str:
        content = {"package": self.package, "packages": self.packages, "scripts": self.scripts}
        return digest_of(content)


class UvxPin(msgspec.Struct, frozen=True, tag="uvx", tag_field="kind", omit_defaults=True):
    """A package of PyPI. `requirements`: lines for `pip install --require-hashes`."""

    package: str
    version: str
    python: str
    """The oldest version of the interpreter that it was resolved for: `3.12`."""
    requirements: tuple[str, ...]
    args: tuple[str, ...] = ()
    env: Mapping[str, str] = {}
    scripts: bool = False
    """Whether packages without a wheel are built, which runs their code."""

    kind: ClassVar[Literal["uvx"]] = "uvx"

    @property
    def digest(self) -> str:
        names = "package", "python", "requirements", "scripts"
        return digest_of({name: getattr(self, name) for name in names})


class BinaryTarget(msgspec.Struct, frozen=True, omit_defaults=True):
    """An archive, or a bare program, for one platform. `cmd` is a path in the archive; `sha256` is
    absent if the registry has none, and the archive was not downloaded there yet."""

    archive: str
    cmd: str
    args: tuple[str, ...] = ()
    env: Mapping[str, str] = {}
    sha256: str | None = None

    @property
    def digest(self) -> str:
        return digest_of({"archive": self.archive, "cmd": self.cmd, "sha256": self.sha256})


class BinaryPin(msgspec.Struct, frozen=True, tag="binary", tag_field="kind", omit_defaults=True):
    """Archives by platform."""

    version: str
    targets: Mapping[str, BinaryTarget]

    kind: ClassVar[Literal["binary"]] = "binary"

    def target(self, name: str, platform: str) -> BinaryTarget:
        """The archive for this platform. Raises `RegistryError`, which lists the platforms."""
        found = self.targets.get(platform)
        if found is None:
            raise RegistryError(
                f"`{name}` {self.version} has no program for this platform, {platform};"
                f" it has: {', '.join(self.targets)}"
            )
        return found


Pin: TypeAlias = NpxPin | UvxPin | BinaryPin


def digest_of(value: Any) -> str:
    """SHA-256 of a value as canonical JSON, in hex."""
    import hashlib  # 1 ms, and most chains have no component of the registry

    return hashlib.sha256(msgspec.json.encode(value, order="sorted")).hexdigest()


def current_platform() -> str:
    """`OS-MACHINE` as in the registry: `linux-x86_64`, `darwin-aarch64`."""
    machine = os.uname().machine.lower()
    return f"{sys.platform}-{_MACHINES.get(machine, machine)}"


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
    """Replace the lock file atomically, or remove it if nothing is pinned. Raises
    `RegistryError`."""
    encoded = msgspec.json.encode(LockFile(dict(sorted(pins.items()))), order="sorted")
    try:
        mode = os.stat(path).st_mode & 0o777 if os.path.exists(path) else 0o644
        if pins:
            with replacing(path, mode) as file:
                file.write(msgspec.json.format(encoded, indent=1) + b"\n")
        elif os.path.exists(path):
            os.unlink(path)
    except OSError as exc:
        raise RegistryError(f"the lock file {path} cannot be written: {exc.strerror}") from None


def _unusable(path: str, reason: str) -> RegistryError:
    help = "restore it, or delete it and run `acp-conductor lock` again"
    return RegistryError(f"the lock file {path} is unusable: {reason}", help)
