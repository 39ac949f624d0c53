"""Resolve a registry component to a command, from the lock file, the store and the snapshot.

Part of every start, and of `show` and `check`: uses no network and runs no program. A component
that is not in the store gets the command of `install_program`, which installs the package, then
executes the component in its place.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec

from conductor.chainfile.model import ComponentSpec, RegistryName
from conductor.errors import RegistryError
from conductor.files import read_own
from conductor.json_values import decode_value
from conductor.registry.pins import (
    REGISTRY_VARIABLE,
    BinaryPin,
    NpxPin,
    Pin,
    current_platform,
    digest_of,
    read_lock,
)
from conductor.registry.store import InstalledPackage, find_installed, store_path

if TYPE_CHECKING:
    from conductor.registry.source import Entry, Kind

__all__ = [
    "INSTALL_SECONDS",
    "RegistryStatus",
    "command_parts",
    "find_pin",
    "locked_pin",
    "pin_path",
    "pin_summary",
    "registry_status",
    "resolved",
]

INSTALL_SECONDS: Final = 900.0
"""Added to `start_timeout` while the package is installed."""


def resolved(spec: ComponentSpec) -> ComponentSpec:
    """The component with its command in `run`; one that names no registry entry is unchanged.

    Raises `RegistryError`.
    """
    if spec.registry is None or spec.run is not None:
        return spec
    pin = find_pin(spec.registry)
    found = None if pin is None else find_installed(spec.registry.name, pin)
    if pin is None or found is None:
        return _installed_at_start(spec, spec.registry)
    argv, env = command_parts(spec.registry.name, pin, *found)
    return msgspec.structs.replace(
        spec, run=argv, env={**env, **spec.env}, sandbox=_sandbox(spec, *found)
    )


def command_parts(
    name: str, pin: Pin, directory: Path, record: InstalledPackage
) -> tuple[tuple[str, ...], dict[str, str]]:
    """The command of an installed pin, and the variables that its entry sets."""
    target = pin.target(name, current_platform()) if isinstance(pin, BinaryPin) else pin
    return (*record.command(directory), *target.args), dict(target.env)


def find_pin(name: RegistryName) -> Pin | None:
    """The pin of the lock file, or that of an earlier start without one; None if there is none."""
    pin = locked_pin(name)
    if pin is not None:
        return pin
    from conductor.registry.source import NotFetched, load_registry

    try:
        entry = load_registry(name.source, name.files).find(name.name)
    except NotFetched:
        return None  # `install_program` fetches it
    for path in _pin_paths(entry, name.install_scripts):
        try:
            known: Pin = decode_value(read_own(path), type=Pin)
        except (OSError, msgspec.DecodeError):
            continue
        return known
    return None


def locked_pin(name: RegistryName) -> Pin | None:
    """The pin of the lock file; None if it has none. Raises `RegistryError` if it does not fit."""
    pin = read_lock(name.lock, name.files).pins.get(name.name)
    if pin is None or isinstance(pin, BinaryPin) or pin.scripts == name.install_scripts:
        return pin
    with_scripts = "with" if pin.scripts else "without"
    raise RegistryError(
        f"the lock file pins `{name.name}` {with_scripts} installation scripts, the chain file says"
        f" `install_scripts: {'yes' if name.install_scripts else 'no'}`",
        "run `acp-conductor lock` for the chain file",
    )


def pin_path(entry: Entry, kind: Kind, scripts: bool) -> Path:
    """The file in the store with the pin of an entry that no lock file pins."""
    content: Any = getattr(entry.distribution, kind)
    identity = {"id": entry.id, "kind": kind, "content": content, "scripts": scripts}
    return store_path("pins") / f"{digest_of(identity)[:32]}.json"


def _pin_paths(entry: Entry, scripts: bool) -> Iterator[Path]:
    for kind in entry.kinds(current_platform()):
        yield pin_path(entry, kind, scripts)


def _sandbox(spec: ComponentSpec, directory: Path, record: InstalledPackage) -> Any:
    """The sandbox of the component, which shows the package and its interpreter too."""
    if spec.sandbox is None:
        return None
    real = (os.path.realpath(directory / path) for path in record.needs)
    prefixes = (os.path.dirname(os.path.dirname(path)) for path in real)
    read = (*spec.sandbox.read, str(directory), *prefixes)
    return msgspec.structs.replace(spec.sandbox, read=read)


def _installed_at_start(spec: ComponentSpec, name: RegistryName) -> ComponentSpec:
    if spec.sandbox is not None or not spec.inherit_env or name.files is not None:
        setting = "of a project"  # another process would read the lock file again
        if name.files is None:
            setting = "in a sandbox" if spec.sandbox is not None else "with `inherit_env: no`"
        raise RegistryError(
            f"`{name.name}` is not installed, and is not installed at the start {setting}",
            "run `acp-conductor lock` for the chain file: it installs what is missing",
        )
    argv = [sys.executable, "-P", "-m", "conductor.registry.install_program", name.name]
    argv += ["--lock", name.lock, *(["--scripts"] if name.install_scripts else [])]
    for variable in spec.env:
        argv += ["--keep", variable]
    # The source may be a URL with a secret: it is not passed as an argument.
    source = {} if name.source is None else {REGISTRY_VARIABLE: name.source}
    return msgspec.structs.replace(
        spec,
        run=tuple(argv),
        env={**spec.env, **source},
        start_timeout=spec.start_timeout + INSTALL_SECONDS,
    )


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

    Raises `RegistryError` for an unknown name, or a lock file that does not fit.
    """
    from conductor.registry.source import load_registry

    pin = find_pin(name)
    if pin is None:
        return RegistryStatus(load_registry(name.source).find(name.name).version, is_locked=False)
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
