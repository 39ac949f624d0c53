"""`acp-conductor registry list | show NAME | refresh`: agents by name."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, TypeVar

import click

from conductor.cli.terminal_text import printable

if TYPE_CHECKING:
    from conductor.registry.source import Entry, Registry

__all__ = ["command"]

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
    from conductor.cli.text_table import table

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
    from conductor.cli.lock import fail_registry
    from conductor.errors import RegistryError

    try:
        registry = _load(source)
        print("\n".join(map(printable, _details(registry.find(name)))))
    except RegistryError as exc:
        fail_registry(exc)
    print(f"registry: {registry.described}")


@command.command("refresh")
@_registry_option
def refresh(source: str | None) -> None:
    """Fetch the newest registry and keep a copy of it."""
    from conductor.cli.lock import fail_registry
    from conductor.errors import RegistryError
    from conductor.registry.source import refresh_registry

    try:
        registry = refresh_registry(source)
    except RegistryError as exc:
        fail_registry(exc)
    print(f"{len(registry.entries)} entries; {registry.described}")


def _load(source: str | None) -> Registry:
    from conductor.cli.lock import fail_registry
    from conductor.errors import RegistryError
    from conductor.registry.source import load_registry

    try:
        return load_registry(source)
    except RegistryError as exc:
        fail_registry(exc)


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
