"""One line for each record of a trace, in columns.

      0.158    17  client → usage         71 B           session/prompt  "say hello"
      0.159    25  client ← usage         25 B   0.4 ms  answer to session/prompt #17  …

Columns: seconds since the beginning, number of the record, hop (the component nearer the client is
on the left), size of the payload, and for a response the time since its request.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Final

import attrs

from conductor.cli.terminal_text import (
    Style,
    cell_width,
    cut_to_width,
    printable,
    shown_path,
    styled,
)
from conductor.cli.units import shown_duration, shown_size
from conductor.tracing.json_diff import short_json
from conductor.tracing.message_text import log_text, method_and_text
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

__all__ = ["TraceLines", "hop_name", "message_title"]

_WIDEST_HOP: Final = 40
_NARROW: Final = 120
"""Columns of a terminal below which size and duration share a column."""
_TEXT: Final = 160
"""Characters of a message's text if the line is not cut for a terminal."""


@attrs.define(eq=False)
class TraceLines:
    """Formats the records of a trace, given in order.

    `width` cuts lines for a terminal. Text of peers is without control characters.
    """

    coloured: bool = False
    width: int | None = None
    _chains: bool = attrs.field(default=False, init=False)
    """Whether each line begins with the name of its chain."""
    _started: float | None = attrs.field(default=None, init=False)
    """The beginning of the file, in seconds since 1970."""
    _hop_width: int = attrs.field(default=16, init=False)
    _titles: dict[tuple[str | None, str], str] = attrs.field(factory=dict, init=False)
    """Titles of tool calls, by session and id."""

    def format(self, record: Record) -> str:
        """The line of a record, without its end."""
        if self._started is None:
            self._started = record.time - record.ts
            self._chains = "/" in record.chain
            if record.time == 0:  # of the Rust conductor, which has no header
                self._hop_width = len("Proxy(0) → Proxy(1)")
        match record:
            case TraceHeader():
                return self._header(record)
            case RequestRecord() | NotificationRecord() | ResponseRecord():
                return self._message(record)
            case HandlerRecord():
                took, waited = shown_duration(record.took), shown_duration(record.waited)
                text = f"{record.outcome} {record.method}{_number(record.message)}"
                text += f"  took {took}, waited {waited}  {shown_path(record.handler)}"
                style: Style = "error" if record.outcome == "failed" else "function"
                return self._line(record, record.component, text, style)
            case LogRecord():
                text = f"{log_text(record)}{_number(record.message)}"
                return self._line(record, record.component or "", text, _LEVELS.get(record.level))
            case StderrRecord():
                return self._line(record, record.component, f"stderr: {record.text}", "note")
            case LossRecord():
                text = f"{record.count} records are missing here: they came too fast to be written"
                return self._line(record, "", text, "error")

    def _header(self, header: TraceHeader) -> str:
        names = [each.name for each in header.components]
        pairs = pairwise(names)
        widest = max((len(a) + len(b) + 3 for a, b in pairs), default=0)
        self._hop_width = min(max(self._hop_width, widest), _WIDEST_HOP)
        text = f"{header.chain or 'trace'}: {', '.join(names)}"
        if header.payloads != "full":
            text += f"  (payloads: {header.payloads})"
        return self._styled(text, "note")

    def _message(self, message: RequestRecord | NotificationRecord | ResponseRecord) -> str:
        style: Style = "message"
        elapsed = ""
        if isinstance(message, ResponseRecord):
            style = "error" if message.is_error else "response"
            elapsed = shown_duration(message.elapsed) if message.request else ""
        elif isinstance(message, NotificationRecord):
            style = "text"
        text = message_title(message) + self._tool_title(message)
        size = shown_size(message.size) if message.size else ""
        return self._line(message, hop_name(message), text, style, message.n, size, elapsed)

    def _tool_title(self, message: MessageRecord) -> str:
        """The title of a tool call, behind an update that does not repeat it."""
        match message:
            case NotificationRecord(params={"update": {"toolCallId": str(id)} as update}):
                key, title = (message.session, id), update.get("title")
                if isinstance(title, str):
                    self._titles[key] = title
                elif key in self._titles:
                    return f"  ({short_json(self._titles[key], 40)})"
        return ""

    def _line(
        self,
        record: Record,
        place: str,
        text: str,
        style: Style | None,
        n: int | None = None,
        size: str = "",
        elapsed: str = "",
    ) -> str:
        chain = f"{record.chain} " if self._chains else ""
        since = record.ts
        if record.time and self._started is not None:
            since = record.time - self._started
        columns = f"{since:9.3f} {'' if n is None else n:>6}  "
        columns += f"{_cut(place, self._hop_width):<{self._hop_width}} "
        if self.width is not None and self.width < _NARROW:
            columns += f"{elapsed or size:>8}  "
        else:
            columns += f"{size:>8} {elapsed:>8}  "
        return self._styled(text, style or "text", chain + columns)

    def _styled(self, text: str, style: Style, columns: str = "") -> str:
        columns, text = printable(columns), printable(text)
        if self.width is not None:
            text = cut_to_width(text, max(self.width - cell_width(columns), 10))
        return columns + (styled(text, style) if self.coloured else text)


def hop_name(message: MessageRecord) -> str:
    """Sender and receiver, the one nearer the client on the left."""
    if message.toward == "agent":
        return f"{message.sender} → {message.receiver}"
    return f"{message.receiver} ← {message.sender}"


def message_title(message: RequestRecord | NotificationRecord | ResponseRecord) -> str:
    """Method, number and short text of a message; of a session update its kind, not its method."""
    title, text = method_and_text(message)
    match message:
        case ResponseRecord():
            what = "error of" if message.is_error else "answer to"
            title = f"{what} {title}{_number(message.request or None)}"
            title += " (cancelled)" if message.cancelled else ""
        case NotificationRecord(request=n) if n:
            title, text = f"{title}{_number(n)}", ""
    if message.count > 1:
        title += f" ×{message.count}"
    return f"{title}  {_cut(text, _TEXT)}" if text else title


_LEVELS: Final[dict[str, Style]] = {
    "debug": "note",
    "info": "note",
    "warning": "warning",
    "error": "error",
    "critical": "error",
}


def _number(n: int | None) -> str:
    return "" if n is None else f" #{n}"


def _cut(text: str, width: int) -> str:
    return text if len(text) <= width else text[: width - 1] + "…"
