"""Lock and update the components of a chain file: pin them, install them, write the lock files.

Each chain file has its own lock file, nested ones too. Names that are no longer in a chain file
leave its lock file.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

import msgspec

from conductor.chainfile.model import ComponentSpec, RegistryName
from conductor.errors import RegistryError
from conductor.registry.binary import with_checksum
from conductor.registry.entries import Entry
from conductor.registry.install import ensure_installed, fetched_registry, make_pin
from conductor.registry.lock_file import read_lock, write_lock
from conductor.registry.pins import BinaryPin, Pin, check_digest
from conductor.registry.platform import current_platform
from conductor.registry.resolve import find_pin
from conductor.registry.source import refresh_registry

__all__ = ["LockedComponent", "lock_components", "refresh_sources"]


class LockedComponent(msgspec.Struct, frozen=True):
    """A name that was pinned and installed; `lock` is the path of its lock file."""

    lock: str
    name: str
    before: Pin | None
    """The previous pin; `None` if the lock file had none."""
    pin: Pin


def lock_components(
    specs: Sequence[ComponentSpec], update: Collection[str] = ()
) -> Iterator[LockedComponent]:
    """Pin and install the components that name registry entries; the lock file is written after
    each.

    Pins that exist are kept, except those of the names in `update`. Raises `RegistryError`.
    """
    names = list(dict.fromkeys(spec.registry for spec in specs if spec.registry is not None))
    for path in dict.fromkeys(each.lock for each in names):
        wanted = [each for each in names if each.lock == path]
        before = read_lock(path).pins
        pins = {each.name: before[each.name] for each in wanted if each.name in before}
        for each in wanted:
            try:
                pin = _pin(each, pins.get(each.name), renew=each.name in update)
                ensure_installed(each.name, pin)
            except RegistryError as exc:
                message = exc.message
                if each.name not in message:
                    message = f"{each.name}: {message}"
                raise RegistryError(message, exc.help) from None
            pins[each.name] = pin
            _write(path, pins)
            yield LockedComponent(path, each.name, before.get(each.name), pin)


def refresh_sources(specs: Sequence[ComponentSpec]) -> list[str]:
    """Fetch the registries of the components; returns a message for each failure."""
    names = [spec.registry for spec in specs if spec.registry is not None]
    failed = []
    for source in dict.fromkeys(each.source for each in names):
        try:
            refresh_registry(source)
        except RegistryError as exc:
            failed.append(f"the registry was not refreshed: {exc.message}")
    return failed


def _pin(name: RegistryName, known: Pin | None, *, renew: bool) -> Pin:
    if renew or (known is not None and not _fits(name, known)):
        return make_pin(_entry(name), scripts=name.install_scripts)
    if known is None:
        entry = _entry(name)
        known = find_pin(name) or make_pin(entry, scripts=name.install_scripts)
    if isinstance(known, BinaryPin):
        return with_checksum(name.name, known, current_platform())
    check_digest(name.name, known)
    return known


def _entry(name: RegistryName) -> Entry:
    return fetched_registry(name.source).find(name.name)


def _fits(name: RegistryName, pin: Pin) -> bool:
    return isinstance(pin, BinaryPin) or pin.scripts == name.install_scripts


def _write(path: str, pins: dict[str, Pin]) -> None:
    try:
        write_lock(path, pins)
    except OSError as exc:
        raise RegistryError(f"the lock file {path} cannot be written: {exc.strerror}") from None
