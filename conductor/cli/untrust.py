"""`acp-conductor untrust [PATH]`"""

from __future__ import annotations

import sys

import click

__all__ = ["command"]


@click.command("untrust")
@click.argument("path", default=".", type=click.Path())
def command(path: str) -> None:
    """No longer use the chain file of a project in new sessions; the opposite of `trust`.

    PATH may also be a file that no longer exists.

    \b
    Examples:
      acp-conductor untrust
      acp-conductor untrust ~/src/project/.acp-conductor.yaml
    """
    from conductor.chainfile.trust_store import forget
    from conductor.cli.trust import project_path
    from conductor.places import PROJECT_FILE

    try:
        found = project_path(path)
    except click.UsageError as exc:
        named = f"acp-conductor untrust PATH/{PROJECT_FILE}"
        raise click.UsageError(f"{exc.message}. If it was deleted, name it: {named}") from None
    try:
        was_trusted = forget(found)
    except OSError as exc:
        raise click.ClickException(str(exc)) from None
    click.echo(f"{'No longer trusted' if was_trusted else 'It was not trusted'}: {found}")
    if not was_trusted:
        sys.exit(1)
