"""`acp-conductor trace show FILE`, and the options of trace commands that choose records."""

from __future__ import annotations

import shutil
import sys
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click

from conductor.cli.units import DURATION

if TYPE_CHECKING:
    from conductor.cli.trace.lines import TraceLines
    from conductor.tracing.record_filter import RecordFilter
    from conductor.tracing.records import Record

__all__ = ["command", "filter_options", "record_filter"]

_INTERVAL: Final = 0.2
"""Seconds between two looks at a file to which nothing is added."""

F = TypeVar("F", bound=Callable[..., Any])
_CRITERIA: Final = (
    click.option("--all", "everything", is_flag=True, help="Also handlers, log events and stderr."),
    click.option("--session", metavar="ID", help="Messages of a session."),
    click.option(
        "--method",
        "methods",
        multiple=True,
        metavar="NAME",
        help="Method, or kind of session update; may be repeated.",
    ),
    click.option("--component", metavar="NAME", help="What it sent, received or logged."),
    click.option("--from", "sender", metavar="NAME", help="Messages from this component."),
    click.option("--to", "receiver", metavar="NAME", help="Messages to this component."),
    click.option(
        "--hop",
        type=int,
        metavar="N",
        help="Messages of one hop; 0 is that of the client.",
        hidden=True,
    ),
    click.option(
        "--chain", metavar="NAME", help="In the trace of a server: one chain.", hidden=True
    ),
    click.option(
        "--min-time", type=DURATION, default=0.0, help="Answers and handlers that took as long."
    ),
    click.option("--errors", is_flag=True, help="Errors only."),
    click.option("--grep", "text", metavar="TEXT", help="Messages with a text in them."),
)


def filter_options(command: F) -> F:
    """Add the options; the command gets them as `**criteria`, for `record_filter`."""
    for option in reversed(_CRITERIA):
        command = option(command)
    return command


def record_filter(criteria: dict[str, Any]) -> RecordFilter:
    """The filter of these options."""
    from conductor.tracing.record_filter import RecordFilter

    return RecordFilter(**criteria)


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
