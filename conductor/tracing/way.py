"""The way of one message through the chain, hop by hop, with what happened on it. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import Final, TypeAlias

import attrs

from conductor.acp import PROMPT
from conductor.tracing.links import Cause, Message, find_causes, is_same_message
from conductor.tracing.records import (
    HandlerRecord,
    LogRecord,
    NotificationRecord,
    Record,
    RequestRecord,
    ResponseRecord,
)

__all__ = ["LogSubjects", "MessageWays"]

_Key: TypeAlias = tuple[str, str, str, str | None]
_LEVELS: Final = ("warning", "error")


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

    _open: dict[int, _Key] = attrs.field(factory=dict, init=False)
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
