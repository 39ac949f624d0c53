"""Status of a registry component, for `show` and `check`: version, lock, installation, command.

Uses no network.
"""

from __future__ import annotations

import msgspec

from conductor.chainfile.model import RegistryName
from conductor.registry.lock_file import read_lock
from conductor.registry.pins import BinaryPin, NpxPin, Pin, check_digest
from conductor.registry.resolve import command_parts, find_pin
from conductor.registry.source import load_registry
from conductor.registry.store import find_installed

__all__ = ["RegistryStatus", "pin_summary", "registry_status"]


class RegistryStatus(msgspec.Struct, frozen=True):
    """State of one name: the pinned version, or the newest in the registry if nothing is pinned.

    `command` is empty if it is not installed.
    """

    version: str
    is_locked: bool
    command: tuple[str, ...] = ()
    detail: str = ""
    """Kind and number of packages: `npx, 9 packages`; empty if nothing is pinned."""

    def __str__(self) -> str:
        words = [self.detail] if self.detail else []
        words.append("locked" if self.is_locked else "not locked")
        words.append("installed" if self.command else "not installed")
        return f"{self.version} ({', '.join(words)})"


def registry_status(name: RegistryName) -> RegistryStatus:
    """The status of a name.

    Raises `RegistryError` for an unknown name, or a lock file that does not fit or was changed by
    hand. (A start does not compare digests: it takes the packages that are in the store under it.)
    """
    pin = find_pin(name)
    if pin is None:
        return RegistryStatus(load_registry(name.source).find(name.name).version, is_locked=False)
    check_digest(name.name, pin)
    found = find_installed(name.name, pin)
    command = () if found is None else command_parts(name.name, pin, *found)[0]
    is_locked = name.name in read_lock(name.lock).pins
    return RegistryStatus(pin.version, is_locked, command, pin_summary(pin))


def pin_summary(pin: Pin) -> str:
    """Kind and number of packages, or of platforms."""
    if isinstance(pin, BinaryPin):
        known = sum(target.sha256 is not None for target in pin.targets.values())
        return f"binary, checksums of {known} of {len(pin.targets)} platforms"
    count = len(pin.packages) if isinstance(pin, NpxPin) else len(pin.requirements)
    return f"{pin.kind}, {count} package{'' if count == 1 else 's'}"
