"""`acp-conductor reap`"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Final

import click

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from conductor.control.leftovers import Leftover

__all__ = ["command"]

_MAX_COMMAND: Final = 70
"""Characters of a command line that are shown."""


@click.command("reap")
@click.option("--dry-run", is_flag=True, help="Only show what is left.")
@click.option("--yes", "-y", is_flag=True, help="Do not ask.")
def command(*, dry_run: bool, yes: bool) -> None:
    """End what a killed conductor left: processes, sockets, temporary directories.

    A conductor ends its components itself, also when it is killed; this is for the cases where
    that was not possible. Only what belongs to this user, and to no conductor that still runs, is
    touched. Processes get SIGTERM, and 3 seconds later SIGKILL. Asks first; without a terminal,
    only --yes ends something.

    \b
    Examples:
      acp-conductor reap --dry-run
      acp-conductor reap --yes
    """
    from conductor.control.leftovers import end_leftovers, find_leftovers

    processes, files = find_leftovers(), _find_files()
    if not processes and not files:
        click.echo("nothing is left of killed conductors")
        return
    _show(processes, files)
    if dry_run:
        return
    if not yes and not sys.stdin.isatty():
        click.echo("nothing done: --yes ends and removes these")
        return
    if not yes and not click.confirm("End and remove these?"):
        return
    remaining = end_leftovers(processes)
    # The end of a process may have removed files.
    for _, path, remove in [*files, *_find_files()]:
        remove(path)
    for each in remaining:
        click.echo(f"still running: process {each.pid}", err=True)
    click.echo("done" if not remaining else "the rest is removed")


def _find_files() -> Sequence[tuple[str, str, Callable[[str], object]]]:
    """Files and directories: what each is, its path, and the function that removes it."""
    from pathlib import Path

    from conductor.control.client import is_stale, remove_if_stale
    from conductor.control.directory import sockets
    from conductor.control.temporary_directories import remove_directory, stale_directories

    return [
        *(
            ("control socket", str(path), lambda name: remove_if_stale(Path(name)))
            for _, path in sockets()
            if is_stale(path)
        ),
        *(("directory", path, remove_directory) for path in stale_directories()),
    ]


def _show(
    processes: Sequence[Leftover], files: Sequence[tuple[str, str, Callable[[str], object]]]
) -> None:
    from conductor.cli.terminal_text import printable

    for each in processes:
        words = printable(each.command)
        shown = words if len(words) <= _MAX_COMMAND else f"{words[: _MAX_COMMAND - 1]}…"
        click.echo(f"process {each.pid}: {shown}")
    for kind, path, _ in files:
        click.echo(f"{kind}: {printable(path)}")
