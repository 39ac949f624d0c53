"""The tables of `trace show --stats`: messages, bytes, durations, turns, tokens and cost."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from math import ceil
from typing import Any, Final, TypeAlias

import attrs

from conductor.acp.sessions import UsageMeter
from conductor.acp.turns import Turns
from conductor.cli.terminal_text import shown_path, table
from conductor.cli.units import shown_duration, shown_size
from conductor.tracing.links import Message, MessageWays, is_diverted
from conductor.tracing.message_text import message_text, method_text
from conductor.tracing.records import (
    HandlerRecord,
    LossRecord,
    NotificationRecord,
    Record,
    RequestRecord,
    ResponseRecord,
)

__all__ = ["statistics_lines"]

_PROMPT: Final = 60
"""Characters of a prompt."""
_TOKENS: Final = ("totalTokens", "inputTokens", "outputTokens")
_Cells: TypeAlias = list[str]
_End: TypeAlias = tuple[Message, int, int]
"""A message at the end of a turn, with the updates and tool calls of its session until then."""


@attrs.define
class _Row:
    """The numbers of one hop, method, component or handler."""

    name: str
    messages: int = 0
    size: int = 0
    seconds: list[float] = attrs.field(factory=list)

    def add(self, message: Message) -> None:
        self.messages += message.count
        self.size += message.size

    @property
    def cells(self) -> _Cells:
        """With percentiles of the durations, by nearest rank."""
        ordered = sorted(self.seconds)
        ranks = (ceil(len(ordered) * share) - 1 for share in (0.5, 0.95, 0.99, 1.0))
        times = [shown_duration(ordered[at]) for at in ranks] if ordered else []
        return [self.name, str(self.messages), shown_size(self.size) if self.size else "", *times]


def statistics_lines(
    records: Sequence[Record], top: int, width: int | None = None
) -> Iterator[tuple[str, bool]]:
    """The lines of the report, each with whether it is the head of a table.

    A message that passes several hops counts once, but in the table of hops. `width` cuts names in
    tables for a terminal.
    """
    ways = MessageWays(records)
    messages = list(ways.messages.values())
    before = {each.n: ways.before(each) for each in messages}
    origins = [each for each in messages if before[each.n] is None]
    times = [each.time for each in records if each.time] or [each.ts for each in records]
    errors = sum(1 for each in origins if isinstance(each, ResponseRecord) and each.is_error)
    passed = sum(each.count for each in messages)
    yield (
        (
            f"{sum(each.count for each in origins)} messages in "
            f"{shown_duration(max(times, default=0.0) - min(times, default=0.0))}, "
            f"{errors} error{'s' * (errors != 1)}; on all hops {passed}, "
            f"{shown_size(sum(each.size for each in messages))}"
        ),
        False,
    )
    if lost := sum(each.count for each in records if isinstance(each, LossRecord)):
        yield f"{lost} records are missing: they came too fast to be written", False
    durations = ("messages", "bytes", "p50", "p95", "p99", "longest")
    for head, rows in (
        (("hop", *durations), _hops(messages)),
        (("time in component", *durations), _components(messages, before)),
        (("method", *durations), _methods(origins, ways.responses)),
        (("handler", *durations), _handlers(records)),
        (("slowest turns", "took", "updates", "tools", "ended"), _turns(origins, ways.responses)),
    ):
        yield from _table(head, rows[:top], width)
        if len(rows) > top:
            yield f"and {len(rows) - top} more (--top)", False
    head = ("session", "turns", "tokens", "in", "out", "context", "cost")
    yield from _table(head, _usage(origins), width)


def _table(
    head: Sequence[str], rows: Sequence[_Cells], width: int | None
) -> Iterator[tuple[str, bool]]:
    if rows:
        yield "", False
        for number, line in enumerate(table(head, rows, width=width)):
            yield line, number == 0


def _hops(messages: Iterable[Message]) -> list[_Cells]:
    """Durations from a request to its response, in the order of the chain."""
    rows: dict[tuple[int, str], _Row] = {}
    for each in messages:
        ends = each.sender, each.receiver
        name = ", ".join(ends if each.toward == "agent" else reversed(ends))
        row = rows.setdefault((each.hop, name), _Row(name))
        row.add(each)
        if isinstance(each, ResponseRecord) and each.request:
            row.seconds.append(each.elapsed)
    return [row.cells for _, row in sorted(rows.items())]


def _components(messages: Iterable[Message], before: Mapping[int, Message | None]) -> list[_Cells]:
    """Durations from the arrival of a message to its leaving on the other side."""
    rows: dict[str, _Row] = {}
    for each in messages:
        earlier = before[each.n]
        if earlier is not None and not is_diverted(earlier, each):
            row = rows.setdefault(each.sender, _Row(each.sender))
            row.add(each)
            row.seconds.append(max(each.ts - earlier.ts, 0.0))
    return [row.cells for row in rows.values()]


def _methods(origins: Iterable[Message], responses: Mapping[int, ResponseRecord]) -> list[_Cells]:
    """Durations of requests on their first hop."""
    rows: dict[str, _Row] = {}
    for each in origins:
        if isinstance(each, ResponseRecord):
            continue
        kind = each.update_kind if isinstance(each, NotificationRecord) else None
        name = kind or method_text(each)
        row = rows.setdefault(name, _Row(name))
        row.add(each)
        if each.n in responses and isinstance(each, RequestRecord):
            row.seconds.append(responses[each.n].elapsed)
    return _longest_first(rows)


def _handlers(records: Iterable[Record]) -> list[_Cells]:
    rows: dict[str, _Row] = {}
    for each in records:
        if isinstance(each, HandlerRecord):
            name = f"{each.component} {shown_path(each.handler)}"
            row = rows.setdefault(name, _Row(name))
            row.messages += 1
            row.seconds.append(each.took)
    return _longest_first(rows)


def _longest_first(rows: Mapping[str, _Row]) -> list[_Cells]:
    """Sorted by the time in all; those without durations are last."""
    ordered = sorted(rows.values(), key=lambda row: (-sum(row.seconds), -row.messages))
    return [row.cells for row in ordered]


def _turns(origins: Sequence[Message], responses: Mapping[int, ResponseRecord]) -> list[_Cells]:
    """Prompt turns, the longest first: from the prompt to its response, or in version 2 to the
    state that ends the turn."""
    hop: Turns[int] = Turns(2)  # in version 1 the responses have the stop reason
    end: _End
    begun: dict[int, tuple[RequestRecord, int, int]] = {}
    ends: dict[int, tuple[_End, str | None]] = {}
    updates, tools = Counter[str | None](), Counter[str | None]()
    answers = [responses[each.n] for each in origins if each.n in responses]
    sent = [each for each in origins if not isinstance(each, ResponseRecord)]
    for each in sorted([*sent, *answers], key=lambda each: each.n):
        session = each.session
        turns, ended = hop.of(session or ""), None
        match each:
            case RequestRecord(method="session/prompt"):
                begun[each.n] = each, updates[session], tools[session]
                turns.prompt_sent(each.n, each.ts)
            case ResponseRecord(method="session/prompt"):
                session = begun[each.request][0].session
                end = each, updates[session], tools[session]
                ends[each.request] = end, None
                result = each.payload if isinstance(each.payload, dict) else {}
                ended = turns.prompt_answered(
                    each.request,
                    each.ts,
                    accepted=not each.is_error,
                    stop_reason=result.get("stopReason"),
                    report=end,
                )
            case NotificationRecord(method="session/update"):
                updates[session] += each.count
                tools[session] += each.update_kind == "tool_call"
                if isinstance(each.params, dict) and isinstance(each.params.get("update"), dict):
                    end = each, updates[session], tools[session]
                    ended = turns.take(each.params["update"], each.ts, report=end)
        if ended is not None:
            ends.update((prompt, (ended.report, ended.stop_reason)) for prompt in ended.prompts)
    found: list[tuple[float, _Cells]] = []
    for n, ((last, all_updates, all_tools), reason) in ends.items():
        request, *earlier = begun[n]
        answer = last if isinstance(last, ResponseRecord) else None
        seconds = last.ts - request.ts if answer is None else answer.elapsed
        prompt = message_text("request", "session/prompt", request.params)
        prompt = prompt if len(prompt) <= _PROMPT else prompt[: _PROMPT - 1] + "…"
        cells = [f"#{n} {request.session or ''}  {prompt}", shown_duration(seconds)]
        cells += [str(all_updates - earlier[0]), str(all_tools - earlier[1])]
        is_error = answer is not None and answer.is_error
        cells.append("error" if is_error else (reason or "")[:_PROMPT])
        found.append((seconds, cells))
    return [cells for _, cells in sorted(found, key=lambda each: -each[0])]


def _usage(origins: Iterable[Message]) -> list[_Cells]:
    """Tokens and cost by session, from usage updates and the ends of turns."""
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
    return [_usage_row(name, meter) for name, meter in meters.items()]


def _usage_row(session: str, meter: Any) -> _Cells:
    counts = [f"{count:,}" if count else "" for count in map(meter.tokens.get, _TOKENS)]
    has_context = isinstance(meter.used, int) and isinstance(meter.size, int)
    context = f"{meter.used:,} of {meter.size:,}" if has_context else ""
    cost = ", ".join(f"{amount:.4f} {currency}" for currency, amount in meter.cost.items())
    return [session, f"{meter.turns:,}" if meter.turns else "", *counts, context, cost]
