"""Agents by name: `acp-conductor registry list | show NAME | refresh`, `lock FILE`,
`update FILE [NAME…]`"""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Callable, Collection, Iterator
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

import click

from conductor.cli.arguments import CHAIN_PATH
from conductor.cli.terminal_text import printable, printable_lines

if TYPE_CHECKING:
    from conductor.chainfile.model import ComponentSpec
    from conductor.errors import RegistryError
    from conductor.registry.install import LockedComponent
    from conductor.registry.source import Entry, Registry

__all__ = ["command", "lock_and_report", "lock_command", "update_command"]

_F = TypeVar("_F", bound=Callable[..., Any])


def _registry_option(function: _F) -> _F:
    return click.option(
        "--registry",
        "source",
        metavar="FILE|URL",
        envvar="ACP_CONDUCTOR_REGISTRY",
        help="Another registry than the ACP registry.",
    )(function)


@click.group("registry")
def command() -> None:
    """Look at the registry of agents that chain files name: `agent: claude-acp`.

    A snapshot of the ACP registry is shipped; `refresh` fetches the newest.

    \b
    Examples:
      acp-conductor registry list
      acp-conductor registry show claude-acp
      acp-conductor registry refresh
    """


@command.command("list")
@_registry_option
def list_entries(source: str | None) -> None:
    """List the names, with versions."""
    from conductor.cli.terminal_text import table

    registry = _load(source)
    rows = [
        tuple(map(printable, (each.id, each.version, ",".join(_kinds(each)), each.description)))
        for each in sorted(registry.entries.values(), key=lambda each: each.id)
    ]
    print("\n".join(table(("name", "version", "kinds", "description"), rows, left=4)))
    print(f"{len(rows)} entries; {registry.described}")


@command.command("show")
@click.argument("name")
@_registry_option
def show(name: str, source: str | None) -> None:
    """Show an entry: how it is distributed and started."""
    from conductor.errors import RegistryError

    try:
        registry = _load(source)
        print("\n".join(map(printable, _details(registry.find(name)))))
    except RegistryError as exc:
        _fail(exc)
    print(f"registry: {registry.described}")


@command.command("refresh")
@_registry_option
def refresh(source: str | None) -> None:
    """Fetch the newest registry and keep a copy of it."""
    from conductor.errors import RegistryError
    from conductor.registry.source import refresh_registry

    try:
        registry = refresh_registry(source)
    except RegistryError as exc:
        _fail(exc)
    print(f"{len(registry.entries)} entries; {registry.described}")


def _load(source: str | None) -> Registry:
    from conductor.errors import RegistryError
    from conductor.registry.source import load_registry

    try:
        return load_registry(source)
    except RegistryError as exc:
        _fail(exc)


def _kinds(entry: Entry) -> Iterator[str]:
    if entry.distribution.binary:
        yield "binary"
    if entry.distribution.npx is not None:
        yield "npx"
    if entry.distribution.uvx is not None:
        yield "uvx"


def _details(entry: Entry) -> Iterator[str]:
    yield f"{entry.id} {entry.version}: {entry.name}"
    if entry.description:
        yield f"  {entry.description}"
    if entry.license:
        yield f"  license: {entry.license}"
    if entry.repository:
        yield f"  repository: {entry.repository}"
    for kind in ("npx", "uvx"):
        package = getattr(entry.distribution, kind)
        if package is not None:
            yield f"  {kind}: {shlex.join([package.package, *package.args])}"
            yield from (f"    env: {name}={value}" for name, value in package.env.items())
    for platform, target in entry.distribution.binary.items():
        checksum = f" sha256:{target.sha256}" if target.sha256 else ""
        yield f"  {platform}: {target.archive}{checksum}"
        yield f"    {shlex.join([target.cmd, *target.args])}"


@click.command("lock")
@click.argument("file", type=CHAIN_PATH)
def lock_command(file: str) -> None:
    """Pin and install the agents and proxies that FILE names from the registry.

    Versions and checksums of all packages go to the lock file: `review.lock` beside `review.yaml`.
    Keep it with the chain file. Pins that exist are kept (`acp-conductor update` renews them), and
    what is missing in the store is installed: afterwards starting needs no network.

    \b
    Examples:
      acp-conductor lock review.yaml
    """
    lock_and_report(_registry_components(file))


def _registry_components(file: str) -> list[ComponentSpec]:
    """The components of a chain file, nested ones included, that name registry entries."""
    from conductor.cli.load import read_chain

    found = [spec for spec in read_chain(file).flat() if spec.registry is not None]
    if not found:
        print(f"{file}: no component names a registry entry: nothing to lock", file=sys.stderr)
        sys.exit(0)
    return found


def lock_and_report(specs: list[ComponentSpec], update: Collection[str] = ()) -> None:
    """Lock the components and print a line for each; exit with 1 if one fails."""
    from conductor.errors import RegistryError
    from conductor.registry.install import lock_components

    try:
        for locked in lock_components(specs, update):
            print(printable_lines(_line(locked)), flush=True)
    except RegistryError as exc:
        _fail(exc)


def _fail(error: RegistryError) -> NoReturn:
    """Print the error, and exit with 1."""
    print(printable_lines(f"error: {error}"), file=sys.stderr)
    sys.exit(1)


def _line(locked: LockedComponent) -> str:
    from conductor.registry.resolve import pin_summary

    before, pin = locked.before, locked.pin
    if before is None or before == pin:
        change = "" if before is None else ", unchanged"
        version = pin.version
    elif before.version == pin.version:
        binary = pin.kind == "binary"
        version = pin.version
        change = ", another archive of the same version" if binary else ", its packages changed"
    else:
        version, change = f"{before.version} → {pin.version}", ""
    return f"{os.path.relpath(locked.lock)}: {locked.name} {version} ({pin_summary(pin)}{change})"


@click.command("update")
@click.argument("file", type=CHAIN_PATH)
@click.argument("names", nargs=-1, metavar="[NAME]...")
def update_command(file: str, names: tuple[str, ...]) -> None:
    """Pin what the registry has now for the agents and proxies of FILE, all or those with NAME.

    Fetches the registry first; if that fails, the copy or snapshot at hand is used, with a warning.

    \b
    Examples:
      acp-conductor update review.yaml
      acp-conductor update review.yaml claude-acp
    """
    from conductor.registry.install import refresh_sources

    specs = _registry_components(file)
    known = {spec.registry.name for spec in specs if spec.registry is not None}
    if unknown := [name for name in names if name not in known]:
        told = ", ".join(sorted(known))
        raise click.UsageError(f"{file} names no `{unknown[0]}` from the registry, but {told}")
    for warning in refresh_sources(specs):
        print(printable_lines(f"warning: {warning}"), file=sys.stderr)
    lock_and_report(specs, update=names or known)
