"""`acp-conductor trace stats FILE`"""

from __future__ import annotations

import shutil
import sys
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import click

if TYPE_CHECKING:
    from conductor.tracing.links import Message
    from conductor.tracing.statistics import StatisticsRow, TraceStatistics, TurnStatistics

__all__ = ["command", "statistics_lines"]

_PROMPT: Final = 60
"""Characters of a prompt."""


@click.command("stats")
@click.argument("file", type=click.Path(dir_okay=False), metavar="FILE|PID")
@click.option(
    "--top", type=click.IntRange(min=1), default=10, show_default=True, help="Rows of a table."
)
def command(file: str, top: int) -> None:
    """Count messages, bytes, durations, tokens and cost.

    Durations: of a hop and a method, from a request to its answer; of a component, from the arrival
    of a message until it is passed on; of a handler, from its start to its end, with the time that
    it waited for others. Tokens are as the agent reports them.

    \b
    Examples:
      acp-conductor trace stats t.jsonl
      acp-conductor trace stats t.jsonl --top 30
    """
    from conductor.cli.terminal_text import is_coloured, printable, styled
    from conductor.cli.trace.reading import load
    from conductor.tracing.statistics import statistics

    coloured = is_coloured()
    width = shutil.get_terminal_size().columns if sys.stdout.isatty() else None
    for text, is_heading in statistics_lines(statistics(load(file).records), top, width):
        shown = printable(text)
        sys.stdout.write((styled(shown, "message") if coloured and is_heading else shown) + "\n")


def statistics_lines(
    numbers: TraceStatistics, top: int, width: int | None = None
) -> Iterator[tuple[str, bool]]:
    """The lines of the report, each with whether it is the head of a table.

    `width` cuts names in tables for a terminal.
    """
    from conductor.cli.units import shown_duration, shown_size

    total = f"{numbers.messages} messages in {shown_duration(numbers.seconds)}"
    hops = f"on all hops {numbers.records}, {shown_size(numbers.size)}"
    errors = "1 error" if numbers.errors == 1 else f"{numbers.errors} errors"
    yield f"{total}, {errors}; {hops}", False
    if numbers.lost:
        yield f"{numbers.lost} records are missing: they came too fast to be written", False
    yield from _durations("hop", numbers.hops, top, width)
    yield from _durations("time in component", numbers.components, top, width)
    yield from _durations("method", numbers.methods, top, width)
    yield from _durations("handler", numbers.handlers, top, width)
    yield from _turns(numbers.turns, top, width)
    yield from _usage(numbers.origins, width)


def _durations(
    name: str, rows: Sequence[StatisticsRow], top: int, width: int | None
) -> Iterator[tuple[str, bool]]:
    from conductor.cli.terminal_text import shown_path
    from conductor.cli.units import shown_duration, shown_size

    head = (name, "messages", "bytes", "p50", "p95", "p99", "longest")
    lines = []
    for row in rows[:top]:
        shown = row.name.removeprefix("session/update ")
        if name == "handler":
            component, _, place = row.name.partition(" ")
            shown = f"{component} {shown_path(place)}"
        line = [shown, str(row.messages), shown_size(row.size) if row.size else ""]
        if (known := row.durations) is not None:
            times = (known.p50, known.p95, known.p99, known.longest)
            line += map(shown_duration, times)
        lines.append(line)
    yield from _table(head, lines, len(rows) - top, width)


def _turns(
    turns: Sequence[TurnStatistics], top: int, width: int | None
) -> Iterator[tuple[str, bool]]:
    from conductor.cli.units import shown_duration
    from conductor.tracing.message_text import message_text

    head = ("slowest turns", "took", "updates", "tools", "ended")
    lines = []
    for turn in turns[:top]:
        prompt = message_text("request", "session/prompt", turn.request.params)
        prompt = prompt if len(prompt) <= _PROMPT else prompt[: _PROMPT - 1] + "…"
        took = shown_duration(turn.seconds)
        name = f"#{turn.request.n} {turn.request.session or ''}  {prompt}"
        lines.append([name, took, str(turn.updates), str(turn.tool_calls), _end(turn)])
    yield from _table(head, lines, len(turns) - top, width)


def _end(turn: TurnStatistics) -> str:
    return "error" if turn.is_error else (turn.stop_reason or "")[:_PROMPT]


def _usage(origins: Sequence[Message], width: int | None) -> Iterator[tuple[str, bool]]:
    """Tokens and cost by session, from usage updates and the ends of turns."""
    from conductor.acp.sessions import UsageMeter
    from conductor.tracing.records import NotificationRecord, ResponseRecord

    meters: dict[str, UsageMeter] = defaultdict(UsageMeter)
    for each in origins:
        match each:
            case NotificationRecord(method="session/update", params={"update": dict(update)}):
                kind, usage = update.get("sessionUpdate"), update.get("usage")
                if kind == "usage_update":
                    meters[each.session or ""].update(update)
                elif kind == "state_update" and isinstance(usage, dict):  # ends a version 2 turn
                    meters[each.session or ""].turn(usage)
            case ResponseRecord(method="session/prompt", payload={"usage": dict(usage)}):
                meters[each.session or ""].turn(usage)
    head = ("session", "turns", "tokens", "in", "out", "context", "cost")
    rows = [_usage_row(name, meter) for name, meter in meters.items()]
    yield from _table(head, rows, 0, width)


def _usage_row(session: str, meter: Any) -> list[str]:
    tokens: Mapping[str, int] = meter.tokens
    counts = [_count(tokens.get(f"{name}Tokens")) for name in ("total", "input", "output")]
    has_context = isinstance(meter.used, int) and isinstance(meter.size, int)
    context = f"{meter.used:,} of {meter.size:,}" if has_context else ""
    cost = ", ".join(f"{amount:.4f} {currency}" for currency, amount in meter.cost.items())
    return [session, _count(meter.turns), *counts, context, cost]


def _count(count: int | None) -> str:
    return f"{count:,}" if count else ""


def _table(
    head: Sequence[str], rows: Sequence[Sequence[str]], more: int, width: int | None
) -> Iterator[tuple[str, bool]]:
    from conductor.cli.text_table import table

    if not rows:
        return
    yield "", False
    for number, line in enumerate(table(head, rows, width=width)):
        yield line, number == 0
    if more > 0:
        yield f"and {more} more (--top)", False
