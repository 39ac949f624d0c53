"""Pins: exact versions with checksums, of a package and its transitive dependencies. Pure.

A pin is the entry of a name in a lock file. `digest` identifies the files that are installed for
it; arguments and environment are not part of it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Literal, TypeAlias, TypeVar

import msgspec

from conductor.errors import RegistryError

__all__ = [
    "BinaryPin",
    "LockedTarget",
    "NpxPin",
    "Pin",
    "UvxPin",
    "check_digest",
    "digest_of",
    "sealed",
]


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
    digest: str = ""

    kind: ClassVar[Literal["npx"]] = "npx"


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
    digest: str = ""

    kind: ClassVar[Literal["uvx"]] = "uvx"


class LockedTarget(msgspec.Struct, frozen=True, omit_defaults=True):
    """The archive for one platform; without `sha256` it has not been downloaded there yet."""

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
    targets: Mapping[str, LockedTarget]

    kind: ClassVar[Literal["binary"]] = "binary"

    def target(self, name: str, platform: str) -> LockedTarget:
        """The archive for this platform. Raises `RegistryError`, which lists the platforms."""
        found = self.targets.get(platform)
        if found is None:
            raise RegistryError(
                f"`{name}` {self.version} has no program for this platform, {platform};"
                f" it has: {', '.join(self.targets)}"
            )
        return found


Pin: TypeAlias = NpxPin | UvxPin | BinaryPin
_PackagePin = TypeVar("_PackagePin", bound=NpxPin | UvxPin)


def digest_of(value: Any) -> str:
    """SHA-256 of a value as canonical JSON, in hex."""
    import hashlib  # 1 ms, and not needed to start a locked npm or PyPI package

    return hashlib.sha256(msgspec.json.encode(value, order="sorted")).hexdigest()


def sealed(pin: _PackagePin) -> _PackagePin:
    """The pin with its digest."""
    content: dict[str, Any] = {"package": pin.package, "scripts": pin.scripts}
    if isinstance(pin, NpxPin):
        content |= {"packages": pin.packages}
    else:
        content |= {"python": pin.python, "requirements": pin.requirements}
    return msgspec.structs.replace(pin, digest=digest_of(content))


def check_digest(name: str, pin: Pin) -> None:
    """Raise `RegistryError` if a pin does not match its digest.

    The digest is part of the path in the store: an edited lock file must not install other packages
    under the same path.
    """
    if not isinstance(pin, BinaryPin) and sealed(pin).digest != pin.digest:
        raise RegistryError(
            f"the pin of `{name}` was changed by hand: its digest is {pin.digest}, that of its"
            f" packages {sealed(pin).digest}",
            "restore the lock file, or pin anew with `acp-conductor update`",
        )
