"""`acp-conductor trace show FILE`"""

from __future__ import annotations

import shutil
import sys
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

import click

from conductor.cli.trace.filter_options import filter_options, record_filter

if TYPE_CHECKING:
    from conductor.cli.trace.lines import TraceLines
    from conductor.tracing.record_filter import RecordFilter
    from conductor.tracing.records import Record

__all__ = ["command"]

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
      acp-conductor trace show t.jsonl --min-time 1s
      acp-conductor trace show t.jsonl --errors --follow
      acp-conductor trace show 4711 --follow
      acp-conductor trace show t.jsonl --stats --session session-1
    """
    from conductor.cli.terminal_text import is_coloured
    from conductor.cli.trace.lines import TraceLines
    from conductor.cli.trace.reading import followed_records, records_of

    if follow and stats:
        raise click.UsageError("--stats does not go together with --follow")
    width = shutil.get_terminal_size().columns if sys.stdout.isatty() else None
    if stats:
        _print_statistics(file, criteria | {"everything": True}, top, width)
        return
    records = followed_records(file, lambda: time.sleep(_INTERVAL)) if follow else records_of(file)
    try:
        _print_lines(records, record_filter(criteria), TraceLines(is_coloured(), width), follow)
    except KeyboardInterrupt:
        sys.exit(130)


def _print_lines(
    records: Iterator[Record], chosen: RecordFilter, lines: TraceLines, is_flushed: bool
) -> None:
    from conductor.tracing.records import TraceHeader

    is_empty, shown = True, 0
    for record in records:
        is_empty = False
        if chosen.accepts(record):
            shown += not isinstance(record, TraceHeader)
            print(lines.format(record), flush=is_flushed)
    if is_empty:
        click.echo("the trace is empty", err=True)
    elif not shown:
        click.echo("no record meets the criteria", err=True)


def _print_statistics(file: str, criteria: dict[str, Any], top: int, width: int | None) -> None:
    from conductor.cli.terminal_text import is_coloured, printable, styled
    from conductor.cli.trace.reading import records_of
    from conductor.cli.trace.statistics import statistics_lines

    chosen = record_filter(criteria)
    records = [each for each in records_of(file) if chosen.accepts(each)]
    coloured = is_coloured()
    for text, is_heading in statistics_lines(records, top, width):
        shown = printable(text)
        sys.stdout.write((styled(shown, "message") if coloured and is_heading else shown) + "\n")
