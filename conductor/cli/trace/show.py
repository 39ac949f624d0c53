"""`acp-conductor trace show FILE`"""

from __future__ import annotations

import shutil
import sys
import time
from collections.abc import Iterator
from itertools import chain
from typing import TYPE_CHECKING, Any, Final

import click

from conductor.cli.trace.filter_options import filter_options, record_filter

if TYPE_CHECKING:
    from conductor.cli.trace.lines import TraceLines
    from conductor.tracing.records import Record

__all__ = ["command"]

_BLOCK: Final = 500
"""Lines that are written at once."""
_INTERVAL: Final = 0.2
"""Seconds between two looks at a file to which nothing is added."""


@click.command("show")
@click.argument("file", type=click.Path(dir_okay=False), metavar="FILE|PID")
@filter_options
@click.option(
    "--follow", "-f", is_flag=True, help="Go on with what a running conductor adds, until Ctrl-C."
)
@click.option(
    "--stats", is_flag=True, help="Tables instead: counts, bytes, durations, turns, tokens, cost."
)
@click.option(
    "--top", type=click.IntRange(min=1), default=10, show_default=True, help="Rows of a table."
)
def command(file: str, follow: bool, stats: bool, top: int, **criteria: Any) -> None:
    """Print one line per message: time, number, hop, size, duration, method, text.

    A message that passes several components has a line for each hop; --hop 0 shows it once, as the
    client sees it. Warnings and errors of the log are shown; --all adds the other log events,
    handlers and stderr. Names can be patterns: 'session/*'. All criteria must be met.

    With the process id of a running conductor (`acp-conductor ps`): its trace file, or else its
    flight recorder, which has the last messages with the beginning of their payloads.

    Durations of --stats: of a hop and a method, from a request to its answer; of a component, from
    the arrival of a message until it is passed on; of a handler, from its start to its end, with
    the time that it waited for others. Tokens are as the agent reports them.

    \b
    Examples:
      acp-conductor trace show t.jsonl --hop 0
      acp-conductor trace show t.jsonl --method 'tool_call*' --component permissions
      acp-conductor trace show t.jsonl --min-time 1s --since 14:03
      acp-conductor trace show t.jsonl --errors --follow
      acp-conductor trace show 4711 --follow
      acp-conductor trace show t.jsonl --stats --session session-1
    """
    from conductor.cli.terminal_text import is_coloured
    from conductor.cli.trace.lines import TraceLines
    from conductor.cli.trace.reading import followed_records, is_running, records_of

    if follow and stats:
        raise click.UsageError("--stats does not go together with --follow")
    width = shutil.get_terminal_size().columns if sys.stdout.isatty() else None
    if stats:
        _print_statistics(file, criteria | {"everything": True}, top, width)
        return
    output = _Output(TraceLines(is_coloured(), width), criteria)
    if not follow:
        try:
            output.show(records_of(file))
        finally:  # what comes before a line that is not a record
            output.flush()
        return
    try:
        output.block_size = 1 if is_running(file) else _BLOCK
        output.show(followed_records(file, output.wait))
    except KeyboardInterrupt:
        sys.exit(130)


def _print_statistics(file: str, criteria: dict[str, Any], top: int, width: int | None) -> None:
    from conductor.cli.terminal_text import is_coloured, printable, styled
    from conductor.cli.trace.reading import load
    from conductor.cli.trace.statistics import statistics_lines

    records = load(file)
    if records:
        chosen = record_filter(criteria, records[0])
        records = tuple(each for each in records if chosen.accepts(each))
    coloured = is_coloured()
    for text, is_heading in statistics_lines(records, top, width):
        shown = printable(text)
        sys.stdout.write((styled(shown, "message") if coloured and is_heading else shown) + "\n")


class _Output:
    """Filters, formats and writes the records of one file."""

    def __init__(self, lines: TraceLines, criteria: dict[str, Any]) -> None:
        self._lines = lines
        self._criteria = criteria
        self._block: list[str] = []
        self.block_size: int = _BLOCK
        """1: those of a running conductor come one by one, without `wait`."""

    def show(self, records: Iterator[Record]) -> None:
        from conductor.tracing.records import TraceHeader

        first = next(records, None)
        if first is None:
            click.echo("the trace is empty", err=True)
            return
        shown = 0
        chosen = record_filter(self._criteria, first)
        for record in chain([first], records):
            if chosen.accepts(record):
                shown += not isinstance(record, TraceHeader)
                self._block.append(self._lines.format(record) + "\n")
                if len(self._block) >= self.block_size:
                    self.flush()
        if not shown:
            self.flush()
            click.echo("no record meets the criteria", err=True)

    def flush(self) -> None:
        sys.stdout.write("".join(self._block))
        sys.stdout.flush()
        self._block.clear()

    def wait(self) -> None:
        """Nothing more is in the file now."""
        self.flush()
        time.sleep(_INTERVAL)
