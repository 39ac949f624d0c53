"""`acp-conductor update FILE [NAME…]`"""

from __future__ import annotations

import sys

import click

from conductor.cli.other_files import CHAIN_PATH
from conductor.cli.terminal_text import printable_lines

__all__ = ["command"]


@click.command("update")
@click.argument("file", type=CHAIN_PATH)
@click.argument("names", nargs=-1, metavar="[NAME]...")
def command(file: str, names: tuple[str, ...]) -> None:
    """Pin what the registry has now for the agents and proxies of FILE, all or those with NAME.

    Fetches the registry first; if that fails, the copy or snapshot at hand is used, with a warning.

    \b
    Examples:
      acp-conductor update review.yaml
      acp-conductor update review.yaml claude-acp
    """
    from conductor.cli.lock import lock_and_report, registry_components
    from conductor.registry.lock_components import refresh_sources

    specs = registry_components(file)
    known = {spec.registry.name for spec in specs if spec.registry is not None}
    if unknown := [name for name in names if name not in known]:
        told = ", ".join(sorted(known))
        raise click.UsageError(f"{file} names no `{unknown[0]}` from the registry, but {told}")
    for warning in refresh_sources(specs):
        print(printable_lines(f"warning: {warning}"), file=sys.stderr)
    lock_and_report(specs, update=names or known)
