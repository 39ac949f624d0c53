"""Check the names that chain files take from the registry (`check`), without the network.

An unknown name, or a lock file that does not fit, is an error. A name that is not locked, or not
installed, is a warning.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable, Iterator

from conductor.chainfile import Diagnostic, SourceLocation
from conductor.chainfile.model import ComponentSpec
from conductor.errors import RegistryError
from conductor.registry.source import NotFetched
from conductor.registry.status import RegistryStatus, registry_status

__all__ = ["check_registry", "registry_lines"]


def check_registry(specs: Iterable[ComponentSpec]) -> list[Diagnostic]:
    """Errors and warnings of all components with `registry`."""
    return [problem for spec in specs for problem in _problems(spec)]


def registry_lines(specs: Iterable[ComponentSpec]) -> Iterator[str]:
    """A line for each component with `registry`: its version and status."""
    for spec in specs:
        if spec.registry is not None:
            try:
                yield f"{spec.name}: {spec.registry.name} {registry_status(spec.registry)}"
            except RegistryError:
                continue


def _problems(spec: ComponentSpec) -> Iterator[Diagnostic]:
    if spec.registry is None:
        return
    location = spec.locations.get(("registry",)) or spec.location or SourceLocation.whole(spec.name)
    try:
        status = registry_status(spec.registry)
    except NotFetched as exc:
        yield Diagnostic(location, exc.message, help=exc.help, severity="warning")
        return
    except RegistryError as exc:
        yield Diagnostic(location, exc.message, help=exc.help)
        return
    if missing := _missing(status):
        message = f"{spec.name}: {spec.registry.name} {status.version} is {missing}"
        help = f"`acp-conductor lock {location.path}` pins its versions and checksums"
        help += ", and installs it"
        yield Diagnostic(location, message, help=help, severity="warning")
    path = spec.environment(os.environ).get("PATH", os.defpath)
    if status.command and shutil.which(status.command[0], path=path) is None:
        message = f"{spec.name}: command not found: {status.command[0]}"
        help = f"install it; PATH is {path}"
        yield Diagnostic(location, message, help=help, severity="warning")


def _missing(status: RegistryStatus) -> str:
    if not status.is_locked:
        return "not locked: a later installation may take other packages"
    return "" if status.command else "locked, but not installed here"
