"""`acp-conductor trace diff A B`"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

import click

if TYPE_CHECKING:
    from conductor.cli.terminal_text import Style
    from conductor.tracing.comparison import Comparison, Difference

__all__ = ["command", "comparison_lines"]

_MAX_DIFF: Final = 20


@click.command("diff")
@click.argument("old", type=click.Path(dir_okay=False), metavar="A")
@click.argument("new", type=click.Path(dir_okay=False), metavar="B")
@click.option(
    "--ignore", multiple=True, metavar="NAME", help="Leave out members of this name, as cwd."
)
@click.option(
    "--max",
    "limit",
    type=click.IntRange(min=1),
    default=100,
    show_default=True,
    help="Differences that are shown.",
)
def command(old: str, new: str, ignore: tuple[str, ...], limit: int) -> None:
    """Compare two traces, hop by hop: messages that are in one only, and changed payloads.

    Ids, times and durations differ in every run and are not compared: a session id is replaced by
    its number, the ids of tool calls and messages, UUIDs and times by their kind. If the chains
    have different components, what the client and the agent sent and received is compared, and what
    each component sent that is in both.

    Exit codes: 0 no differences, 1 differences, 2 wrong usage.

    \b
    Examples:
      acp-conductor trace diff before.jsonl after.jsonl
      acp-conductor trace diff before.jsonl after.jsonl --ignore cwd
    """
    from conductor.cli.terminal_text import is_coloured, printable, styled
    from conductor.cli.trace.reading import load
    from conductor.tracing.comparison import compare

    comparison = compare(load(old), load(new), ignore)
    coloured = is_coloured()
    for text, style in comparison_lines(comparison, limit):
        shown = printable(text)
        sys.stdout.write((styled(shown, style) if coloured else shown) + "\n")
    sys.exit(1 if comparison.differences else 0)


def comparison_lines(comparison: Comparison, limit: int) -> Iterator[tuple[str, Style]]:
    """The differences as lines with their styles, and a summary."""
    lane = ""
    for difference in comparison.differences[:limit]:
        if difference.lane != lane:
            lane = difference.lane
            yield lane, "message"
        yield from _difference(difference)
    found = comparison.differences
    if len(found) > limit:
        yield f"and {len(found) - limit} more differences (--max)", "note"
    if comparison.only_ends:
        yield (
            "different components: compared are client, agent, and what common components sent",
            "note",
        )
    removed = sum(1 for each in found if each.new is None)
    added = sum(1 for each in found if each.old is None)
    changed = len(found) - removed - added
    yield (
        f"{comparison.equal} messages equal, {changed} changed, {removed} only in A, "
        f"{added} only in B",
        "text",
    )


def _difference(difference: Difference) -> Iterator[tuple[str, Style]]:
    from conductor.cli.trace.lines import message_title
    from conductor.tracing.json_diff import json_diff

    old, new = difference.old, difference.new
    if old is not None and new is not None:
        yield f"  #{old.n}, in B #{new.n}: {message_title(new)}", "text"
        lines = json_diff(difference.old_payload, difference.new_payload)
        for line in lines[:_MAX_DIFF]:
            yield f"      {line}", "-" if line.startswith("-") else "+"
        if len(lines) > _MAX_DIFF:
            yield f"      and {len(lines) - _MAX_DIFF} more differences", "note"
    elif old is not None:
        yield f"- #{old.n} {message_title(old)}", "-"
    elif new is not None:
        yield f"+ #{new.n} {message_title(new)}", "+"
