"""`acp-conductor trace`: looks at trace files. One module per subcommand; `dump` is here."""

from __future__ import annotations

from typing import Final

import click

from conductor.cli.command_group import LazyGroup

__all__ = ["command"]

_COMMANDS: Final = {
    "show": "Print one line per message, filtered; --follow a running conductor; --stats.",
    "view": "Show a trace in a browser: sequence diagram, timeline, what was changed.",
    "why": "Show the way of one message through every hop.",
    "check": "Check each message against the schema of ACP; exit code 1 if one does not fit.",
    "diff": "Compare two traces; exit code 1 if they differ.",
    "replay": "Play a recorded session again: as agent, as client, or through a changed chain.",
    "dump": "Write the flight recorder of a running conductor to a file.",
    "export": "Write a trace, or a part of it, in another format.",
}
"""The subcommands with their lines in `--help`."""


@click.group(
    "trace",
    cls=LazyGroup,
    summaries=_COMMANDS,
    prefix="conductor.cli.trace.",
    modules={"dump": "command:dump"},
)
def command() -> None:
    """Look at what passed between the components of a chain.

    `--trace FILE` of run, agent, proxy, serve and prompt writes a trace file, one record per line.
    Trace files of the Rust conductor are read, too.

    \b
    Examples:
      acp-conductor prompt --trace t.jsonl chains/hello.yaml "say hello"
      acp-conductor trace show t.jsonl
      acp-conductor trace why t.jsonl 17
    """


@click.command("dump")
@click.argument("pid", type=click.IntRange(min=1))
def dump(pid: int) -> None:
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
