"""Pin and install entries of a registry.

In: an entry, which names a package of npm or PyPI, or binaries. `make_pin` asks the package
registry for exact versions and checksums, or downloads the binary: that is the `Pin`.
`ensure_installed` installs a pin into the store, unless it is there. Both need the network, and npm
or uv for packages; they block, and raise `RegistryError`.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import msgspec

from conductor.errors import RegistryError
from conductor.registry.binary import discard_download, install_binary, pin_binary
from conductor.registry.entries import Entry, Kind, Registry
from conductor.registry.npm import install_npm, pin_npm, script_packages
from conductor.registry.pins import BinaryPin, NpxPin, Pin, check_digest
from conductor.registry.platform import current_platform
from conductor.registry.pypi import install_pypi, pin_pypi
from conductor.registry.resolve import pin_path
from conductor.registry.source import NotFetched, load_registry, refresh_registry
from conductor.registry.store import InstalledPackage, find_installed, installing, replace_file
from conductor.registry.tools import Tool, find_tool

__all__ = ["ensure_installed", "fetched_registry", "install_unlocked", "make_pin"]

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
    check_digest(name, pin)
    begin = time.monotonic()
    _say(f"installing {name} {pin.version} from {_PLACES[pin.kind]}, once")
    with installing(name, pin) as staging:
        if not staging.done:
            staging.record = _install(name, pin, staging.directory)
    found = find_installed(name, pin)
    if found is None:
        raise RegistryError(f"`{name}` {pin.version} was installed, but its program is not there")
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
