"""Messages, bytes and durations of a trace, by hop, method, component and handler. Pure."""

from __future__ import annotations

from bisect import bisect
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from math import ceil

import attrs

from conductor.acp.turns import Turns
from conductor.tracing.direction import direction
from conductor.tracing.links import Message, is_diverted
from conductor.tracing.message_text import method_text
from conductor.tracing.records import (
    HandlerRecord,
    LossRecord,
    NotificationRecord,
    Record,
    RequestRecord,
    ResponseRecord,
)
from conductor.tracing.way import MessageWays

__all__ = ["Durations", "StatisticsRow", "TraceStatistics", "TurnStatistics", "statistics"]


@attrs.frozen
class Durations:
    """Percentiles of durations, in seconds, by nearest rank."""

    count: int
    total: float
    p50: float
    p95: float
    p99: float
    longest: float

    @classmethod
    def of(cls, seconds: Iterable[float]) -> Durations | None:
        """`None` for no durations."""
        ordered = sorted(seconds)
        if not ordered:
            return None
        p50, p95, p99 = (ordered[ceil(len(ordered) * share) - 1] for share in (0.5, 0.95, 0.99))
        return cls(len(ordered), sum(ordered), p50, p95, p99, ordered[-1])


@attrs.frozen
class StatisticsRow:
    """The numbers of one hop, method, component or handler."""

    name: str
    messages: int
    size: int
    """Bytes of payloads."""
    durations: Durations | None


@attrs.frozen
class TurnStatistics:
    """A prompt turn."""

    request: RequestRecord
    seconds: float
    """From the prompt to its response, or in version 2 to the state that ends the turn."""
    stop_reason: str | None
    is_error: bool
    updates: int
    """Session updates that the agent sent during the turn, tool calls included."""
    tool_calls: int


@attrs.frozen
class TraceStatistics:
    """The numbers of a trace. Rows are in the order of the chain, or the longest total first."""

    seconds: float
    """From the first record to the last."""
    messages: int
    """A message that passes several hops counts once."""
    records: int
    """Messages on all hops."""
    size: int
    """Bytes of payloads on all hops."""
    errors: int
    lost: int
    hops: Sequence[StatisticsRow]
    """Durations are those from a request to its response on the hop."""
    methods: Sequence[StatisticsRow]
    """Each message once, with its durations on its first hop."""
    components: Sequence[StatisticsRow]
    """Durations are those from the arrival of a message to its leaving on the other side."""
    handlers: Sequence[StatisticsRow]
    turns: Sequence[TurnStatistics]
    """The longest first."""
    origins: Sequence[Message]
    """Each message once, as it first was sent, in order."""


def statistics(records: Sequence[Record]) -> TraceStatistics:
    """Count the records of a trace."""
    ways = MessageWays(records)
    messages = list(ways.messages.values())
    before = {each.n: ways.before(each) for each in messages}
    origins = [each for each in messages if before[each.n] is None]
    times = [each.time for each in records if each.time] or [each.ts for each in records]
    return TraceStatistics(
        seconds=max(times) - min(times) if times else 0.0,
        messages=sum(each.count for each in origins),
        records=sum(each.count for each in messages),
        size=sum(each.size for each in messages),
        errors=sum(1 for each in origins if isinstance(each, ResponseRecord) and each.is_error),
        lost=sum(each.count for each in records if isinstance(each, LossRecord)),
        hops=_hops(messages),
        methods=_methods(origins, ways.responses),
        components=_components(messages, before),
        handlers=_handlers(records),
        turns=_turns(origins, ways.responses),
        origins=origins,
    )


def _hops(messages: Iterable[Message]) -> list[StatisticsRow]:
    of_hop: dict[tuple[int, str], list[Message]] = defaultdict(list)
    for each in messages:
        ends = each.sender, each.receiver
        name = ", ".join(ends if direction(each) == "agent" else reversed(ends))
        of_hop[each.hop, name].append(each)
    return [_row(name, found, _elapsed(found)) for (_, name), found in sorted(of_hop.items())]


def _methods(
    origins: Iterable[Message],
    responses: Mapping[int, ResponseRecord],
) -> list[StatisticsRow]:
    of_method: dict[str, list[Message]] = defaultdict(list)
    seconds: dict[str, list[float]] = defaultdict(list)
    for each in origins:
        name = _method(each)
        if not isinstance(each, ResponseRecord):
            of_method[name].append(each)
        if isinstance(each, RequestRecord) and each.n in responses:
            seconds[name].append(responses[each.n].elapsed)
    return _longest_first(_row(name, of_method[name], seconds[name]) for name in of_method)


def _components(
    messages: Iterable[Message], before: Mapping[int, Message | None]
) -> list[StatisticsRow]:
    of_component: dict[str, list[Message]] = defaultdict(list)
    seconds: dict[str, list[float]] = defaultdict(list)
    for each in messages:
        earlier = before[each.n]
        if earlier is not None and not is_diverted(earlier, each):
            of_component[each.sender].append(each)
            seconds[each.sender].append(max(each.ts - earlier.ts, 0.0))
    return [_row(name, found, seconds[name]) for name, found in of_component.items()]


def _handlers(records: Iterable[Record]) -> list[StatisticsRow]:
    of_handler: dict[str, list[float]] = defaultdict(list)
    for each in records:
        if isinstance(each, HandlerRecord):
            of_handler[f"{each.component} {each.handler}"].append(each.took)
    return _longest_first(
        StatisticsRow(name, len(seconds), 0, Durations.of(seconds))
        for name, seconds in of_handler.items()
    )


def _turns(
    origins: Sequence[Message],
    responses: Mapping[int, ResponseRecord],
) -> list[TurnStatistics]:
    updates: dict[str | None, list[NotificationRecord]] = defaultdict(list)
    requests: dict[int, RequestRecord] = {}
    hop: Turns[int] = Turns(2)  # in version 1 the responses have the stop reason
    ends: dict[int, tuple[Message, str | None]] = {}
    answers = [responses[each.n] for each in origins if each.n in responses]
    sent = [each for each in origins if not isinstance(each, ResponseRecord)]
    for each in sorted([*sent, *answers], key=lambda each: each.n):
        turns, ended = hop.of(each.session or ""), None
        match each:
            case RequestRecord(method="session/prompt"):
                requests[each.n] = each
                turns.prompt_sent(each.n, each.ts)
            case ResponseRecord(method="session/prompt"):
                ends[each.request] = each, None
                result = each.payload if isinstance(each.payload, dict) else {}
                ended = turns.prompt_answered(
                    each.request,
                    each.ts,
                    accepted=not each.is_error,
                    stop_reason=result.get("stopReason"),
                    report=each,
                )
            case NotificationRecord(method="session/update"):
                updates[each.session].append(each)
                if isinstance(each.params, dict) and isinstance(each.params.get("update"), dict):
                    ended = turns.take(each.params["update"], each.ts, report=each)
        if ended is not None:
            ends.update((prompt, (ended.report, ended.stop_reason)) for prompt in ended.prompts)
    found = [_turn(requests[n], end, reason, updates) for n, (end, reason) in ends.items()]
    return sorted(found, key=lambda turn: -turn.seconds)


def _turn(
    request: RequestRecord,
    end: Message,
    stop_reason: str | None,
    updates: Mapping[str | None, Sequence[NotificationRecord]],
) -> TurnStatistics:
    during = _between(updates[request.session], request.n, end.n)
    response = end if isinstance(end, ResponseRecord) else None
    return TurnStatistics(
        request,
        end.ts - request.ts if response is None else response.elapsed,
        stop_reason,
        response is not None and response.is_error,
        updates=sum(one.count for one in during),
        tool_calls=sum(1 for one in during if _method(one) == "session/update tool_call"),
    )


def _between(
    messages: Sequence[NotificationRecord], first: int, last: int
) -> Sequence[NotificationRecord]:
    """The messages with numbers between these; they are in order."""
    start, end = (bisect(messages, n, key=lambda each: each.n) for n in (first, last))
    return messages[start:end]


def _method(message: Message) -> str:
    """The method, and the kind of a session update."""
    if isinstance(message, ResponseRecord):
        return message.method
    kind = message.update_kind if isinstance(message, NotificationRecord) else None
    return method_text(message) if kind is None else f"{message.method} {kind}"


def _elapsed(messages: Iterable[Message]) -> list[float]:
    return [each.elapsed for each in messages if isinstance(each, ResponseRecord) and each.request]


def _row(name: str, messages: Sequence[Message], seconds: Sequence[float]) -> StatisticsRow:
    size = sum(each.size for each in messages)
    return StatisticsRow(name, sum(each.count for each in messages), size, Durations.of(seconds))


def _longest_first(rows: Iterable[StatisticsRow]) -> list[StatisticsRow]:
    """Sorted by the time in all; those without durations are last."""

    def key(row: StatisticsRow) -> tuple[float, int]:
        return (-row.durations.total if row.durations else 0.0, -row.messages)

    return sorted(rows, key=key)
