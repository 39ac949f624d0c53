"""`acp-conductor trace why FILE N`"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

import click

if TYPE_CHECKING:
    from conductor.cli.terminal_text import Style
    from conductor.tracing.links import Message, MessageWays

__all__ = ["command", "way_lines"]

_MAX_DIFF: Final = 20
_MAX_SENT: Final = 10
_HOW: Final = {
    "equal payload": "equal payload",
    "order": "same method and session, in order",
    "request": "through its request",
}
_ENDS: Final = ("Client", "Agent")


@click.command("why")
@click.argument("file", type=click.Path(dir_okay=False), metavar="FILE|PID")
@click.argument("number", metavar="N")
def command(file: str, number: str) -> None:
    """Show the way of message N through every hop: changes, handlers, durations, its answer.

    N is the number that `trace show` prints, of the message on any hop. For each component: what it
    changed, how long it kept the message, the handler with its place, and log events about the
    message, such as the rule that decided. For components that are processes, the trace does not
    have the link between what came in and what went out; links that are inferred are marked.

    \b
    Examples:
      acp-conductor trace why t.jsonl 17
    """
    from conductor.cli.terminal_text import is_coloured, printable, styled
    from conductor.cli.trace.reading import load
    from conductor.tracing.links import MessageWays

    ways = MessageWays(load(file))
    wanted = number.removeprefix("#")
    message = ways.messages.get(int(wanted)) if wanted.isdecimal() else None
    if message is None:
        numbers = f"{min(ways.messages)} to {max(ways.messages)}" if ways.messages else "none"
        raise click.UsageError(
            f"{file} has no message {number!r}; its messages: {numbers}. "
            f"`acp-conductor trace show {file}` prints them."
        )
    coloured = is_coloured()
    for text, style in way_lines(ways, message):
        shown = printable(text)
        sys.stdout.write((styled(shown, style) if coloured else shown) + "\n")


def way_lines(ways: MessageWays, message: Message) -> Iterator[tuple[str, Style]]:
    """The way of a message and of its answer, as lines with their styles."""
    from conductor.tracing.records import RequestRecord

    way = ways.way(message)
    yield from _one_way(ways, way)
    if not isinstance(message, RequestRecord):
        if not isinstance(message, RequestRecord) and message.request:
            yield "", "text"
            yield f"the request: acp-conductor trace why FILE {message.request}", "note"
        return
    answers = list(ways.answers(way))
    for answer in answers:
        yield "", "text"
        yield from _one_way(ways, ways.way(answer))
    if not answers:
        last = way[-1]
        yield "", "text"
        yield f"no answer in this trace: {last.receiver} got it last (#{last.n})", "warning"


def _one_way(ways: MessageWays, way: list[Message]) -> Iterator[tuple[str, Style]]:
    from conductor.cli.trace.lines import message_title
    from conductor.tracing.records import ResponseRecord

    first = way[0]
    is_error = getattr(first, "is_error", False)
    yield message_title(first), "error" if is_error else "message"
    cause = ways.causes.get(first.n)
    if cause is not None and cause.n in ways.messages:
        earlier = ways.messages[cause.n]
        if earlier.n != getattr(first, "request", None):
            what = f"#{earlier.n} {message_title(earlier)}"
            yield f"  sent by {first.sender} while it handled {what}", "note"
    elif first.from_ not in _ENDS and first.sender != "conductor":
        is_mcp = not isinstance(first, ResponseRecord) and first.protocol == "mcp"
        if is_mcp and first.toward == "client":
            yield f"  sent by {first.sender} for an MCP connection of the agent", "note"
        else:
            text = f"  made by {first.sender}: none of the messages that it got is its cause"
            yield text, "note"
    for message in way:
        yield from _hop(ways, message)
        yield from _at_receiver(ways, message)


def _hop(ways: MessageWays, message: Message) -> Iterator[tuple[str, Style]]:
    """The message on one hop: what its sender did with it, and where it went."""
    from conductor.cli.trace.lines import hop_name
    from conductor.cli.units import shown_duration, shown_size
    from conductor.tracing.links import is_diverted

    before = ways.before(message)
    if before is not None and is_diverted(before, message):
        yield f"    {message.receiver} was inserted for it, and gets it instead", "text"
    elif before is not None:
        how = _HOW.get(ways.causes[message.n].how)
        inferred = f"  (link inferred: {how})" if how else ""
        after = shown_duration(max(message.ts - before.ts, 0.0))
        changes = list(_changes(before, message))
        what = "changed" if changes else "unchanged"
        if before.count != message.count:
            many = max(before.count, message.count)
            what, changes = f"in a record that stands for {many} messages", []
        yield f"    {message.sender}: passed on after {after}, {what}{inferred}", "text"
        yield from changes
    elapsed = getattr(message, "elapsed", 0.0)
    took = f"  {shown_duration(elapsed)} after the request" if elapsed else ""
    masked = "  (secrets masked)" if message.masked else ""
    size = f"  {shown_size(message.size)}" if message.size else ""
    yield f"  #{message.n}  {message.ts:.3f}  {hop_name(message)}{size}{took}{masked}", "response"


def _at_receiver(ways: MessageWays, message: Message) -> Iterator[tuple[str, Style]]:
    """Lines about the message in its receiver: handlers, log events, what was sent for it."""
    from conductor.cli.terminal_text import shown_path
    from conductor.cli.trace.lines import message_title
    from conductor.cli.units import shown_duration
    from conductor.tracing.message_text import log_text
    from conductor.tracing.records import RequestRecord, ResponseRecord

    name = message.receiver
    if (cancellation := ways.cancellations.get(message.n)) is not None:
        after = shown_duration(cancellation.ts - message.ts)
        yield (
            f"    {cancellation.sender}: cancelled it after {after} (#{cancellation.n})",
            "warning",
        )
    for handler in ways.handlers.get(message.n, ()):
        waited = f"waited {shown_duration(handler.waited)} for its lane"
        text = f"handler {shown_path(handler.handler)} {handler.outcome} it"
        style: Style = "error" if handler.outcome == "failed" else "function"
        yield f"    {name}: {text}; {waited}, took {shown_duration(handler.took)}", style
    for log in ways.logs.get(message.n, ()):
        yield f"    {log.component or name}: {log_text(log)}", "warning"
    sent = ways.also_sent(message)
    for other in sent[:_MAX_SENT]:
        yield f"    {name}: sent #{other.n} {message_title(other)}", "note"
    if len(sent) > _MAX_SENT:
        yield f"    {name}: sent {len(sent) - _MAX_SENT} more messages", "note"
    if isinstance(message, RequestRecord) and message.n in ways.responses:
        answer = ways.responses[message.n]
        if not ways.passed_on(message):
            what = "an error" if answer.is_error else "its answer"
            yield f"    {name}: {what} is #{answer.n}, after {_after(answer, message)}", "text"
    elif message.to not in _ENDS and not ways.passed_on(message):
        is_answer = isinstance(message, ResponseRecord)
        text = "it ended here" if is_answer else "it was not passed on"
        yield f"    {name}: {text}", "warning"


def _after(later: Message, earlier: Message) -> str:
    from conductor.cli.units import shown_duration

    return shown_duration(max(later.ts - earlier.ts, 0.0))


def _changes(before: Message, after: Message) -> Iterator[tuple[str, Style]]:
    """The difference of two payloads, as indented lines."""
    from conductor.tracing.json_diff import json_diff, without_marks
    from conductor.tracing.records import NotificationRecord

    if (
        isinstance(after, NotificationRecord) and after.request
    ):  # a cancellation names the request of its hop
        return
    old, new = before.content, after.content
    is_left_out = before.head is not None or after.head is not None or old is new
    if is_left_out and (before.head, before.size) != (after.head, after.size):
        text = f"{before.size} B, then {after.size} B; the payload is not in the trace"
        yield f"      {text}", "note"
        return
    lines = json_diff(without_marks(old), without_marks(new))
    for line in lines[:_MAX_DIFF]:
        yield f"      {line}", "-" if line.startswith("-") else "+"
    if len(lines) > _MAX_DIFF:
        yield f"      and {len(lines) - _MAX_DIFF} more differences", "note"
