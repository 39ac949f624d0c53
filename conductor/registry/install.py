"""Pin and install entries of a registry, and lock and update the components of a chain file.

In: an entry, which names a package of npm or PyPI, or binaries. `make_pin` asks the package
registry for exact versions and checksums, or downloads the binary: that is the `Pin`.
`ensure_installed` installs a pin into the store, unless it is there. Both need the network, and npm
or uv for packages; they block, and raise `RegistryError`.

Each chain file has its own lock file, nested ones too. Names that are no longer in a chain file
leave its lock file.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Final

import msgspec

from conductor.chainfile.model import ComponentSpec, RegistryName
from conductor.errors import RegistryError
from conductor.registry.binary import discard_download, install_binary, pin_binary, with_checksum
from conductor.registry.npm import install_npm, pin_npm, script_packages
from conductor.registry.pins import (
    BinaryPin,
    NpxPin,
    Pin,
    current_platform,
    read_lock,
    write_lock,
)
from conductor.registry.pypi import install_pypi, pin_pypi
from conductor.registry.resolve import find_pin, pin_path
from conductor.registry.source import (
    Entry,
    Kind,
    NotFetched,
    Registry,
    load_registry,
    refresh_registry,
)
from conductor.registry.store import (
    InstalledPackage,
    find_installed,
    install_into_store,
    replace_file,
)
from conductor.registry.tools import Tool, find_tool

__all__ = [
    "LockedComponent",
    "ensure_installed",
    "fetched_registry",
    "install_unlocked",
    "lock_components",
    "make_pin",
    "refresh_sources",
]

_TOOLS: Final[Mapping[Kind, Tool]] = {"npx": "npm", "uvx": "uv"}
_PLACES: Final[Mapping[Kind, str]] = {"npx": "npm", "uvx": "PyPI", "binary": "its release"}


def fetched_registry(source: str | None) -> Registry:
    """The registry; from a URL it is fetched if the store has no copy. Raises `RegistryError`."""
    try:
        return load_registry(source)
    except NotFetched:
        return refresh_registry(source)


def make_pin(entry: Entry, *, scripts: bool) -> Pin:
    """Resolve the exact versions and checksums of an entry. Raises `RegistryError`.

    `scripts`: allow the packages' installation scripts.
    """
    match _usable_kind(entry):
        case "npx":
            assert entry.distribution.npx is not None
            return pin_npm(entry.distribution.npx, scripts=scripts)
        case "uvx":
            assert entry.distribution.uvx is not None
            return pin_pypi(entry.distribution.uvx, scripts=scripts)
        case "binary":
            return pin_binary(entry, current_platform())


def install_unlocked(entry: Entry, *, scripts: bool) -> tuple[Pin, Path, InstalledPackage]:
    """Pin and install an entry for chain files without a lock file: later starts find the pin in
    the store. A pin that cannot be installed is not kept. Raises `RegistryError`."""
    pin = make_pin(entry, scripts=scripts)
    directory, record = ensure_installed(entry.id, pin)
    replace_file(pin_path(entry, pin.kind, scripts), msgspec.json.encode(pin))
    return pin, directory, record


def ensure_installed(name: str, pin: Pin) -> tuple[Path, InstalledPackage]:
    """Install a pin unless it is installed; returns its directory and how to start it.

    Reports progress on stderr. Waits while another process installs the same pin. Raises
    `RegistryError`.
    """
    found = find_installed(name, pin)
    if found is not None:
        if isinstance(pin, BinaryPin):
            discard_download(pin, current_platform())
        return found
    begin = time.monotonic()
    _say(f"installing {name} {pin.version} from {_PLACES[pin.kind]}, once")
    found = install_into_store(name, pin, partial(_install, name, pin))
    _say(f"installed {name} {pin.version} in {time.monotonic() - begin:.1f} s")
    return found


def _install(name: str, pin: Pin, directory: Path) -> InstalledPackage:
    if isinstance(pin, BinaryPin):
        return install_binary(name, pin, current_platform(), directory)
    if not isinstance(pin, NpxPin):
        return install_pypi(pin, directory)
    skipped = [] if pin.scripts else script_packages(pin)
    if skipped:
        _say(
            f"the installation scripts of {', '.join(skipped)} do not run; if {name} does not start"
            " without them, give it `install_scripts: yes`"
        )
    return install_npm(pin, directory)


def _usable_kind(entry: Entry) -> Kind:
    """The first kind of distribution that this platform supports and that has its package manager
    installed. Raises `RegistryError`, with the reason for the first kind."""
    missing: list[RegistryError] = []
    for kind in entry.kinds(current_platform()):
        try:
            if kind in _TOOLS:
                find_tool(_TOOLS[kind])
            return kind
        except RegistryError as exc:
            missing.append(exc)
    raise missing[0]


def _say(text: str) -> None:
    text = "".join(char if char.isprintable() else " " for char in text)
    print(f"acp-conductor: {text}", file=sys.stderr, flush=True)


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
            write_lock(path, pins)
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
    return known


def _entry(name: RegistryName) -> Entry:
    return fetched_registry(name.source).find(name.name)


def _fits(name: RegistryName, pin: Pin) -> bool:
    return isinstance(pin, BinaryPin) or pin.scripts == name.install_scripts
