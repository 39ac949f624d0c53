"""`acp-conductor lock FILE`, `acp-conductor update FILE [NAME…]`"""

from __future__ import annotations

import os
import sys
from collections.abc import Collection
from typing import TYPE_CHECKING, NoReturn

import click

from conductor.cli.arguments import CHAIN_PATH
from conductor.cli.terminal_text import printable_lines

if TYPE_CHECKING:
    from conductor.chainfile.model import ComponentSpec
    from conductor.errors import RegistryError
    from conductor.registry.install import LockedComponent

__all__ = ["command", "fail_registry", "lock_and_report", "update_command"]


@click.command("lock")
@click.argument("file", type=CHAIN_PATH)
def command(file: str) -> None:
    """Pin and install the agents and proxies that FILE names from the registry.

    Versions and checksums of all packages go to the lock file: `review.lock` beside `review.yaml`.
    Keep it with the chain file. Pins that exist are kept (`acp-conductor update` renews them), and
    what is missing in the store is installed: afterwards starting needs no network.

    \b
    Examples:
      acp-conductor lock review.yaml
    """
    lock_and_report(registry_components(file))


def registry_components(file: str) -> list[ComponentSpec]:
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
        fail_registry(exc)


def fail_registry(error: RegistryError) -> NoReturn:
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

    specs = registry_components(file)
    known = {spec.registry.name for spec in specs if spec.registry is not None}
    if unknown := [name for name in names if name not in known]:
        told = ", ".join(sorted(known))
        raise click.UsageError(f"{file} names no `{unknown[0]}` from the registry, but {told}")
    for warning in refresh_sources(specs):
        print(printable_lines(f"warning: {warning}"), file=sys.stderr)
    lock_and_report(specs, update=names or known)
