"""Make records, as lines of JSON, of the entries of recorders.

Payloads are written as they came; secrets in them are masked afterwards, in blocks of lines
(`masking`). Lines of the log and of stderr are masked here. Records
are numbered in the order of their entries.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from typing import Any, Final

import attrs
import msgspec

from conductor import __version__
from conductor.redaction import redact, redact_value
from conductor.tracing.line_block import LineBlock
from conductor.tracing.message_lines import MessageLines
from conductor.tracing.payload_text import Payloads
from conductor.tracing.recorder import (
    Entry,
    HandlerEntry,
    LogEntry,
    LossEntry,
    StartEntry,
    StderrEntry,
    TraceRecorder,
)
from conductor.tracing.records import (
    HandlerRecord,
    LogRecord,
    LossRecord,
    Record,
    StderrRecord,
    TraceHeader,
)
from conductor.tracing.trace_component import TraceComponent

__all__ = ["Encoder", "Payloads"]

_encode: Final = msgspec.json.Encoder().encode


@attrs.define(eq=False, repr=False)
class Encoder:
    """Numbers and encodes the entries of one file; several chains may take turns in it."""

    payloads: Payloads = "full"
    messages: MessageLines = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self.messages = MessageLines(self.payloads)

    def header(self, recorder: TraceRecorder, components: Sequence[TraceComponent]) -> bytes:
        """The line that begins a file, and each chain in it."""
        return _line(
            TraceHeader(
                ts=0.0,
                time=_seconds(recorder.started_at),
                chain=recorder.chain,
                conductor=__version__,
                pid=os.getpid(),
                payloads=self.payloads,
                components=tuple(components),
            )
        )

    def encode(self, entries: Iterable[Entry]) -> LineBlock:
        """The lines of entries, several for a batch of notifications."""
        block = LineBlock()
        messages: list[tuple[Any, ...]] = []
        for entry in entries:
            if isinstance(entry, tuple):
                messages.append(entry)
                continue
            self.messages.add(messages, block)
            messages = []
            block.add(self._event(entry))
        self.messages.add(messages, block)
        return block

    def _event(
        self, entry: HandlerEntry | LogEntry | StderrEntry | StartEntry | LossEntry
    ) -> bytes:
        match entry:
            case HandlerEntry():
                return _line(_handled(entry))
            case LogEntry():
                return _line(_logged(entry))
            case StderrEntry():
                return _line(_stderr(entry))
            case StartEntry(recorder, components):
                return self.header(recorder, components)
            case LossEntry(recorder, time, count):
                return _line(LossRecord(**_when(recorder, time), count=count))


def _handled(entry: HandlerEntry) -> HandlerRecord:
    return HandlerRecord(
        **_when(entry.recorder, entry.ended),
        component=entry.component,
        message=entry.message.n,
        method=entry.method,
        handler=entry.location,
        waited=_seconds(entry.started - entry.message.time),
        took=_seconds(entry.ended - entry.started),
        outcome=entry.outcome,
    )


def _logged(entry: LogEntry) -> LogRecord:
    fields = redact_value(entry.fields)
    return LogRecord(
        **_when(entry.recorder, entry.time),
        level=entry.level,
        event=redact(entry.event),
        component=entry.component,
        message=None if entry.message is None else entry.message.n,
        fields={name: _plain(value) for name, value in fields.items()},
    )


def _stderr(entry: StderrEntry) -> StderrRecord:
    when = _when(entry.recorder, entry.time)
    return StderrRecord(**when, component=entry.component, text=redact(entry.text))


def _when(recorder: TraceRecorder, time: float) -> dict[str, Any]:
    """The chain, and the time on both clocks."""
    since = time - recorder.started
    return {
        "ts": _seconds(since),
        "time": _seconds(recorder.started_at + since),
        "chain": recorder.chain,
    }


def _plain(value: Any) -> Any:
    """A field of a log event, as JSON can have it."""
    return value if isinstance(value, str | int | float | bool | None) else str(value)


def _seconds(seconds: float) -> float:
    return round(seconds, 6)


def _line(record: Record) -> bytes:
    return _encode(record) + b"\n"
