"""Links between the records of one message: maps a message that a component sent to the received
message that it came from. Pure.

Plugins of the conductor record the link (`cause`). For other components it is inferred:

1. Requests and notifications: a message that the component received from the other side, of the
   same method, with an equal payload; the first one that is not linked yet.
2. Those that are left: the same method and session, in order, between the links of rule 1. A
   record of several messages (`count`) counts as that many.
3. Responses: through their requests. The response to the request that was passed on is the cause;
   without one, the component answered the request itself.
4. Cancellations: through the requests that they cancel.

A component that drops one message and sends another of its own, of the same method and session,
looks as if it had changed the message. So inferred links are marked.

`MessageWays` has the ways of messages through the chain, hop by hop, with what happened on them.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict, deque
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from typing import Final, Literal, TypeAlias

import attrs

from conductor.acp import PROMPT
from conductor.tracing.json_diff import canonical_json
from conductor.tracing.records import (
    HandlerRecord,
    LogRecord,
    NotificationRecord,
    Record,
    RequestRecord,
    ResponseRecord,
    TraceHeader,
)

__all__ = [
    "Cause",
    "How",
    "LogSubjects",
    "Message",
    "MessageWays",
    "find_causes",
    "is_diverted",
    "is_same_message",
]

Message: TypeAlias = RequestRecord | NotificationRecord | ResponseRecord
How: TypeAlias = Literal["recorded", "equal payload", "order", "request"]
_Key: TypeAlias = tuple[str, str, str, type, str]
_Asked: TypeAlias = tuple[str, str, str, str | None]
_LEVELS: Final = ("warning", "error")


@attrs.frozen
class Cause:
    """The message that another one came from."""

    n: int
    how: How = "recorded"
    """"recorded"; or inferred by rule 1 ("equal payload"), 2 ("order") or 3 and 4 ("request")."""


def find_causes(records: Iterable[Record]) -> dict[int, Cause]:
    """The causes of messages, by number; a message that a component made itself has none.

    The cause is the same message one hop before, or what the sender was handling
    (`is_same_message` tells which).
    """
    records = list(records)
    messages = [each for each in records if isinstance(each, Message)]
    recording = _recording_components(records)
    causes: dict[int, Cause] = {}
    arrived: dict[_Key, list[Message]] = defaultdict(list)
    sent: dict[_Key, list[Message]] = defaultdict(list)
    for message in messages:
        if message.cause is not None:
            causes[message.n] = Cause(message.cause)
        if isinstance(message, ResponseRecord) or _cancelled(message):
            continue
        if message.cause is None and (message.chain, message.sender) not in recording:
            sent[_key(message, message.sender)].append(message)
        if (message.chain, message.receiver) not in recording:
            arrived[_key(message, message.receiver)] += [message] * message.count
    for key, leaving in sent.items():
        if key in arrived:
            causes |= _match(arrived[key], leaving)
    _link_responses(messages, causes)
    _link_cancellations(messages, causes)
    return causes


def is_same_message(before: Message, after: Message) -> bool:
    """Whether `after` is `before`, passed on or changed by the component that received it; or, on
    the same hop, given to a component that was inserted for it (`is_diverted`)."""
    if type(before) is not type(after) or before.method != after.method:
        return False
    if before.receiver == after.sender:
        return before.sender != after.receiver
    return is_diverted(before, after)


def is_diverted(before: Message, after: Message) -> bool:
    """Whether a component was inserted for a request: `before` is its record on the way to the
    component behind, `after` that on the way to the inserted one."""
    return before.sender == after.sender and isinstance(after, RequestRecord)


def _recording_components(records: Sequence[Record]) -> set[tuple[str, str]]:
    """Chains and names of the components that record causes, or begin or end every message.

    Those that are not in a header were inserted later, and are plugins if their messages have a
    cause. Messages of processes have one if the conductor made or diverted them.
    """
    found: set[tuple[str, str]] = set()
    others: set[tuple[str, str]] = set()
    for each in records:
        if isinstance(each, TraceHeader):
            kinds = ("plugin", "client", "parent")
            for one in each.components:
                (found if one.kind in kinds else others).add((each.chain, one.name))
        elif isinstance(each, Message) and each.cause is not None:
            component = each.chain, each.sender
            if component not in others:
                found.add(component)
    return found


def _key(message: Message, component: str) -> _Key:
    return message.chain, component, message.toward, type(message), message.method


def _match(arrived: Sequence[Message], leaving: Sequence[Message]) -> dict[int, Cause]:
    """Link what left a component to what arrived there, of one method and direction."""
    places = _equal_payloads(arrived, leaving)
    causes = {out.n: Cause(arrived[at].n, "equal payload") for out, at in _pairs(leaving, places)}
    used = {at for at in places if at is not None}
    left: dict[str | None, list[int]] = defaultdict(list)
    for at, message in enumerate(arrived):
        if at not in used:
            left[message.session].append(at)
    if not left:
        return causes
    limits = _next_places(places, len(arrived))
    first = 0
    for out, place, limit in zip(leaving, places, limits, strict=True):
        if place is not None:
            first = max(first, place + 1)
            continue
        candidates = left[out.session]
        index = bisect_left(candidates, first)
        if index < len(candidates) and candidates[index] < limit:
            candidate = arrived[candidates[index]]
            if candidate.n < out.n:
                causes[out.n] = Cause(candidate.n, "order")
                last = min(index + out.count, len(candidates)) - 1
                first = candidates[last] + 1
    return causes


def _pairs(
    leaving: Sequence[Message], places: Sequence[int | None]
) -> Iterable[tuple[Message, int]]:
    return ((out, at) for out, at in zip(leaving, places, strict=True) if at is not None)


def _equal_payloads(arrived: Sequence[Message], leaving: Sequence[Message]) -> list[int | None]:
    """For each message that left, the index of the first one that arrived with an equal payload."""
    waiting: dict[Hashable, deque[int]] = defaultdict(deque)
    for at, message in enumerate(arrived):
        waiting[_payload(message)].append(at)
    places: list[int | None] = []
    for out in leaving:
        equal = waiting.get(_payload(out))
        is_found = equal and arrived[equal[0]].n < out.n
        places.append(equal.popleft() if equal and is_found else None)
    return places


def _next_places(places: Sequence[int | None], end: int) -> list[int]:
    """For each message that left, the place of the next linked one; `end` behind the last."""
    limits = []
    for at in reversed(places):
        limits.append(end)
        end = end if at is None else min(end, at)
    return limits[::-1]


def _payload(message: Message) -> Hashable:
    """Key for the comparison of payloads: beginning and size if the trace left the payload out. A
    record of several messages is equal to none."""
    if message.count > 1:
        return message.n
    value = message.content
    if value is None:
        return message.session, message.head, message.size
    return canonical_json(value) or message.size


def _link_responses(messages: Sequence[Message], causes: dict[int, Cause]) -> None:
    """Rule 3, for the responses without a recorded cause."""
    requests = {each.n: each for each in messages if isinstance(each, RequestRecord)}
    responses = {each.request: each for each in messages if isinstance(each, ResponseRecord)}
    passed_on: dict[int, list[int]] = defaultdict(list)
    for n, request in requests.items():
        if (arrived := _passed_on_from(request, requests, causes)) is not None:
            passed_on[arrived.n].append(n)
    for response in responses.values():
        if response.n in causes or response.request not in requests:
            continue
        earlier = [
            responses[n].n
            for n in passed_on[response.request]
            if n in responses and responses[n].n < response.n
        ]
        causes[response.n] = Cause(max(earlier, default=response.request), "request")


def _passed_on_from(
    request: RequestRecord, requests: Mapping[int, RequestRecord], causes: Mapping[int, Cause]
) -> RequestRecord | None:
    """The same request as its sender received it, one hop before."""
    while (cause := causes.get(request.n)) is not None:
        before = requests.get(cause.n)
        if before is None or before.n >= request.n or not is_same_message(before, request):
            return None
        if not is_diverted(before, request):
            return before
        request = before
    return None


def _link_cancellations(messages: Sequence[Message], causes: dict[int, Cause]) -> None:
    """Rule 4: the cause is the cancellation of the request that this request came from."""
    cancellations = {asked: each for each in messages if (asked := _cancelled(each))}
    for asked, message in cancellations.items():
        cause = causes.get(asked)
        before = None if cause is None else cancellations.get(cause.n)
        if before is not None and before.n < message.n:
            causes[message.n] = Cause(before.n, "request")


def _cancelled(message: Message) -> int:
    """The number of the request that a message cancels; 0 if it is not a cancellation."""
    return message.request if isinstance(message, NotificationRecord) else 0


@attrs.define(eq=False, init=False)
class MessageWays:
    """The messages of a trace by number, and what belongs to each."""

    messages: dict[int, Message]
    causes: dict[int, Cause]
    handlers: dict[int, list[HandlerRecord]]
    """The handlers that ran for a message, by its number; likewise `logs` (`LogSubjects`)."""
    logs: dict[int, list[LogRecord]]
    responses: dict[int, ResponseRecord]
    """By the number of the request; likewise `cancellations`."""
    cancellations: dict[int, NotificationRecord]
    _effects: dict[int, list[int]]

    def __init__(self, records: Iterable[Record]) -> None:
        records = list(records)
        self.messages = {each.n: each for each in records if isinstance(each, Message)}
        self.causes = find_causes(records)
        self.handlers, self.logs = defaultdict(list), defaultdict(list)
        self.responses, self.cancellations = {}, {}
        self._effects = defaultdict(list)
        subjects = LogSubjects()
        for each in records:
            if (about := subjects.add(each)) is not None and isinstance(each, LogRecord):
                self.logs[about].append(each)
            match each:
                case HandlerRecord(message=int(n)):
                    self.handlers[n].append(each)
                case NotificationRecord(request=n) if n:
                    self.cancellations[n] = each
                case ResponseRecord():
                    self.responses[each.request] = each
        for n, cause in self.causes.items():
            self._effects[cause.n].append(n)

    def before(self, message: Message) -> Message | None:
        """The same message, one hop before."""
        cause = self.causes.get(message.n)
        found = None if cause is None or cause.n >= message.n else self.messages.get(cause.n)
        return found if found is not None and is_same_message(found, message) else None

    def origin(self, message: Message) -> Message:
        """The same message, where it first was sent."""
        while (before := self.before(message)) is not None:
            message = before
        return message

    def passed_on(self, message: Message) -> list[Message]:
        """The same message, one hop further: one, or none if it ended here, or several copies."""
        return [each for each in self._sent_for(message) if is_same_message(message, each)]

    def also_sent(self, message: Message) -> list[Message]:
        """Messages that the receiver sent while it handled the message, without its response."""
        return [
            each
            for each in self._sent_for(message)
            if not is_same_message(message, each) and not isinstance(each, ResponseRecord)
        ]

    def way(self, message: Message) -> list[Message]:
        """The same message on all its hops, from its origin on, in order."""
        left, found = [self.origin(message)], []
        while left:
            found.append(left.pop())
            left += reversed(self.passed_on(found[-1]))
        return found

    def answers(self, way: Iterable[Message]) -> Iterator[Message]:
        """The origins of the responses to a request on its hops: one, if none was replaced."""
        requests = [each for each in way if isinstance(each, RequestRecord)]
        responses = [self.responses[each.n] for each in requests if each.n in self.responses]
        origins = {origin.n: origin for origin in map(self.origin, responses)}
        yield from (origins[n] for n in sorted(origins))

    def _sent_for(self, message: Message) -> list[Message]:
        effects = (self.messages[n] for n in self._effects.get(message.n, ()))
        return [each for each in effects if each.n > message.n]


@attrs.define(eq=False)
class LogSubjects:
    """Finds the messages that log events are about; gets the records of a trace in order.

    Those of a plugin that handles a message name that message. Stalls, timeouts and turns that the
    conductor ends are logged outside of handlers: such an event names the component, its session or
    the method, and is about the request that the component has not answered at that time.
    """

    _open: dict[int, _Asked] = attrs.field(factory=dict, init=False)
    """Chain, receiver, method and session of requests without a response, by number."""

    def add(self, record: Record) -> int | None:
        """Take the next record. Returns the number of the message that a log event is about."""
        match record:
            case RequestRecord():
                key = record.chain, record.receiver, record.method, record.session
                self._open[record.n] = key
            case ResponseRecord():
                self._open.pop(record.request, None)
            case LogRecord(message=None) if record.level in _LEVELS:
                return self._unanswered(record)
            case LogRecord():
                return record.message
        return None

    def _unanswered(self, event: LogRecord) -> int | None:
        session, method = event.fields.get("session"), event.fields.get("method")
        if session is None and method is None:
            return None
        component = event.fields.get("blocked_by", event.component)
        wanted = event.chain, component, method or PROMPT
        for n, (*key, asked) in reversed(self._open.items()):
            if tuple(key) == wanted and session in (None, asked):
                return n
        return None
