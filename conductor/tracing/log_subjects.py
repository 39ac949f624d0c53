"""The messages that log events are about. Pure.

Log events of a plugin that handles a message name that message. Stalls, timeouts and turns that the
conductor ends are logged outside of handlers: such an event names the component, its session or the
method, and is about the request that the component has not answered at that time.
"""

from __future__ import annotations

from typing import Final, TypeAlias

import attrs

from conductor.acp import PROMPT
from conductor.tracing.records import LogRecord, Record, RequestRecord, ResponseRecord

__all__ = ["LogSubjects"]

_Key: TypeAlias = tuple[str, str, str, str | None]
_LEVELS: Final = ("warning", "error")


@attrs.define(eq=False)
class LogSubjects:
    """Finds them; gets the records of a trace in order."""

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
