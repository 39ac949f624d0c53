"""Filter for the records of a trace. Pure.

Each criterion is one attribute; a record passes if it meets all that are given. A record that
cannot meet a criterion (a line of stderr has no method) does not pass it. Names are patterns as of
`fnmatch`: `session/*`.
"""

from __future__ import annotations

from collections.abc import Iterator
from fnmatch import fnmatchcase
from typing import Any, Final

import attrs

from conductor.tracing.records import (
    HandlerRecord,
    LogRecord,
    LossRecord,
    MessageRecord,
    NotificationRecord,
    Record,
    RequestRecord,
    ResponseRecord,
    StderrRecord,
    TraceHeader,
)

__all__ = ["RecordFilter"]

_SEARCHED: Final = (
    *("method", "session", "head", "params", "payload"),
    *("component", "handler", "event", "fields", "text"),
)
"""Members of records that `RecordFilter.text` may be in."""
_Message = RequestRecord | NotificationRecord | ResponseRecord


@attrs.define
class RecordFilter:
    """Criteria for records; without any, messages and problems pass.

    Records are given to `accepts` in the order of the file: handlers and log events belong to the
    session and to the method of their message.
    """

    everything: bool = False
    """Also handlers, log events below "warning" and stderr."""
    session: str | None = None
    methods: tuple[str, ...] = ()
    """One of them matches the method, or the kind of the session update."""
    component: str | None = None
    """Matches sender or receiver, or the component of a record that is not a message."""
    sender: str | None = None
    receiver: str | None = None
    hop: int | None = None
    chain: str | None = None
    min_time: float = 0.0
    """Seconds that a response or a handler took at least."""
    errors: bool = False
    """Error responses, failed handlers, log events of level "error", and lost records."""
    text: str | None = None
    """Is somewhere in the payload or the text, in upper or lower case."""
    _seen: dict[int, _Message] = attrs.field(factory=dict, init=False)
    """Messages that later records may name, by number."""

    def accepts(self, record: Record) -> bool:
        """Whether a record passes. A header always does."""
        if isinstance(record, TraceHeader):
            return self.chain is None or fnmatchcase(record.chain, self.chain)
        message = self._message(record)
        return (
            self._is_of_shown_type(record)
            and (self.chain is None or fnmatchcase(record.chain, self.chain))
            and (not self.errors or _is_problem(record))
            and self._is_of_message(message)
            and self._is_of_component(record)
            and self._passes(record)
            and _took(record) >= self.min_time
            and (self.text is None or _contains(record, self.text.casefold()))
        )

    def _message(self, record: Record) -> _Message | None:
        """The record itself, or the message that it is about."""
        match record:
            case RequestRecord() | NotificationRecord() | ResponseRecord():
                if self.session is not None or self.methods:
                    self._seen[record.n] = record
                return record
            case HandlerRecord(message=int(n)) | LogRecord(message=int(n)):
                return self._seen.get(n)
        return None

    def _is_of_shown_type(self, record: Record) -> bool:
        match record:
            case StderrRecord():
                return self.everything
            case HandlerRecord():
                return self.everything or (self.errors and record.outcome == "failed")
            case LogRecord():
                return self.everything or record.level in ("warning", "error", "critical")
        return True

    def _is_of_message(self, message: _Message | None) -> bool:
        if self.session is None and not self.methods:
            return True
        if message is None:
            return False
        if self.session is not None and not fnmatchcase(message.session or "", self.session):
            return False
        if not self.methods:
            return True
        kind = message.update_kind if isinstance(message, NotificationRecord) else None
        return any(
            fnmatchcase(message.method, each) or (kind is not None and fnmatchcase(kind, each))
            for each in self.methods
        )

    def _is_of_component(self, record: Record) -> bool:
        if self.component is None:
            return True
        if isinstance(record, MessageRecord):
            names = {record.sender, record.receiver, record.from_, record.to}
        else:
            names = {getattr(record, "component", None) or ""}
        return any(fnmatchcase(name, self.component) for name in names)

    def _passes(self, record: Record) -> bool:
        """Whether a message took the way that is asked for."""
        sender, receiver = self.sender, self.receiver
        if not isinstance(record, MessageRecord):
            return sender is None and receiver is None and self.hop is None
        return (
            (sender is None or _is_named(sender, record.sender, record.from_))
            and (receiver is None or _is_named(receiver, record.receiver, record.to))
            and (self.hop is None or record.hop == self.hop)
        )


def _is_named(pattern: str, name: str, label: str) -> bool:
    return fnmatchcase(name, pattern) or fnmatchcase(label, pattern)


def _is_problem(record: Record) -> bool:
    match record:
        case ResponseRecord():
            return record.is_error
        case HandlerRecord():
            return record.outcome == "failed"
        case LogRecord():
            return record.level in ("error", "critical")
        case LossRecord():
            return True
    return False


def _took(record: Record) -> float:
    match record:
        case ResponseRecord():
            return record.elapsed
        case HandlerRecord():
            return record.took
    return 0.0


def _contains(record: Record, text: str) -> bool:
    return any(text in each.casefold() for each in _texts(record))


def _texts(record: Record) -> Iterator[str]:
    """Every text in a record: names, values, and the names of members."""
    left: list[Any] = [getattr(record, name, None) for name in _SEARCHED]
    while left:
        match left.pop():
            case str(text):
                yield text
            case dict(members):
                left += members
                left += members.values()
            case list(items):
                left += items
            case int() | float() as number:
                yield str(number)
