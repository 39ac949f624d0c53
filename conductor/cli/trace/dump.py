"""`acp-conductor trace dump PID`"""

from __future__ import annotations

import click

__all__ = ["command"]


@click.command("dump")
@click.argument("pid", type=click.IntRange(min=1))
def command(pid: int) -> None:
    """Write the flight recorder of a running conductor to a file, and print its path.

    Every conductor keeps its last messages in memory, with the beginning of their payloads. It
    writes them itself when a component fails and on SIGUSR1. With --trace, the path is that of the
    trace file. `acp-conductor ps` lists process ids.

    \b
    Examples:
      acp-conductor trace show "$(acp-conductor trace dump 4711)"
    """
    from conductor.cli.trace.reading import dumped_file

    click.echo(dumped_file(pid))
