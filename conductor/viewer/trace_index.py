"""Short rows of the records of a trace: what the page needs to draw, filter and link them. Pure.

A row is a JSON array of about 100 bytes, so that a page has 100,000 of them at once. Names are
indices into `TraceIndex.strings`. Payloads stay in the file.
"""

from __future__ import annotations

import hashlib
from typing import Any, Final, TypeAlias

import attrs
import msgspec

from conductor.acp.sessions import UsageMeter
from conductor.tracing.json_diff import canonical_json, without_marks
from conductor.tracing.links import LogSubjects, Message, find_causes, is_same_message
from conductor.tracing.message_text import log_text, method_and_text
from conductor.tracing.records import (
    HandlerRecord,
    LogRecord,
    LossRecord,
    NotificationRecord,
    Record,
    RequestRecord,
    ResponseRecord,
    StderrRecord,
    TraceHeader,
)

__all__ = ["Link", "Row", "TraceIndex"]

_TEXT: Final = 160
"""Characters of a row's text."""
_DIGEST: Final = 16
_RECORDING: Final = ("client", "parent", "plugin")
"""Kinds of components with recorded links."""
Link: TypeAlias = tuple[int, int, str, int]
"""A message, its cause, how the link was found, and 1 if the payload differs from that of the same
message one hop before."""
_encode: Final = msgspec.json.Encoder().encode


class Row(msgspec.Struct, array_like=True, kw_only=True):
    """One record. `static/rows.js` has the same fields in the same order."""

    type: str
    """First letters of the record's type: q (request), n, r, h, l, s, x (lost), t (header)."""
    ts: float
    """Seconds since the beginning of the trace."""
    chain: int
    sender: int
    """The component, also of a record that is not a message; -1: none."""
    receiver: int = -1
    n: int = 0
    toward_agent: int = 0
    hop: int = -1
    method: int = -1
    """For a session update, its kind."""
    session: int = -1
    size: int = 0
    is_error: int = 0
    is_mcp: int = 0
    ref: int = 0
    """For a response or cancellation, the number of its request; for a handler or log event, that
    of its message."""
    took: float = 0.0
    cause: int = 0
    is_changed: int = 0
    """Whether the payload differs from that of the same message one hop before (`cause`)."""
    text: str = ""
    extra: dict[str, Any] | None = None


@attrs.define(eq=False)
class TraceIndex:
    """The rows of a trace; grows with `add`."""

    rows: list[bytes] = attrs.field(factory=list)
    """Encoded."""
    strings: list[str] = attrs.field(factory=list)
    usage: dict[str, dict[str, Any]] = attrs.field(factory=dict)
    """Tokens, context and cost of sessions, as the agent reported them last."""
    _numbers: dict[str, int] = attrs.field(factory=dict, init=False)
    _lanes: list[str] = attrs.field(factory=list, init=False)
    _agents: set[str] = attrs.field(factory=set, init=False)
    _started: float | None = attrs.field(default=None, init=False)
    _meters: dict[str, UsageMeter] = attrs.field(factory=dict, init=False)
    _kept: list[Record] = attrs.field(factory=list, init=False)
    """Headers, and messages with the digest of their payload in its place."""
    _messages: dict[int, Message] = attrs.field(factory=dict, init=False)
    """Messages of `_kept` by number."""
    _recording: set[tuple[str, str]] = attrs.field(factory=set, init=False)
    _subjects: LogSubjects = attrs.field(factory=LogSubjects, init=False)
    _infers: bool = attrs.field(default=False, init=False)

    def add(self, record: Record) -> None:
        """Add the next record."""
        if self._started is None:
            self._started = record.time - record.ts if record.time else 0.0
        row = self._row(record)
        if isinstance(record, TraceHeader):
            kinds = [each.kind for each in record.components]
            self._infers |= any(each not in _RECORDING for each in kinds[1:-1])
            self._kept.append(record)
        elif isinstance(record, Message):
            self._infers |= record.from_ == "Proxy(0)" and not self._recording
            slim = _without_payload(record)
            self._kept.append(slim)
            self._messages[record.n] = slim
            row.is_changed = self._is_changed(record.cause or 0, slim)
        row.text = _encodable(row.text)
        if row.extra is not None:
            row.extra = {name: _encodable(value) for name, value in row.extra.items()}
        self.rows.append(_encode(row))

    def lanes(self) -> list[str]:
        """The components, from the client to the agent."""
        return list(self._lanes)

    def links(self) -> list[Link]:
        """The inferred links between messages (`conductor.tracing.links`)."""
        if not self._infers:
            return []
        return [
            (n, cause.n, cause.how, self._is_changed(cause.n, self._messages[n]))
            for n, cause in find_causes(self._kept[:]).items()
            if cause.how != "recorded"
        ]

    def _is_changed(self, cause: int, message: Message) -> int:
        before = self._messages.get(cause)
        is_cancellation = isinstance(message, NotificationRecord) and message.request
        if before is None or is_cancellation or not is_same_message(before, message):
            return 0
        return int((before.head, before.size) != (message.head, message.size))

    def _row(self, record: Record) -> Row:
        since = record.ts
        if record.time and self._started is not None:
            since = record.time - self._started
        row = Row(type="x", ts=round(since, 6), chain=self._number(record.chain), sender=-1)
        row.ref = self._subjects.add(record) or 0
        match record:
            case RequestRecord() | NotificationRecord() | ResponseRecord():
                self._message(row, record)
            case TraceHeader():
                self._header(row, record)
            case HandlerRecord():
                row.type, row.took, row.ref = "h", record.took, record.message or 0
                row.method = self._number(record.method)
                row.is_error = int(record.outcome == "failed")
                row.text = f"{record.outcome} by {'/'.join(record.handler.split('/')[-2:])}"
                row.extra = {"waited": record.waited, "at": record.handler}
            case LogRecord():
                row.type = "l"
                row.text = log_text(record)[: 2 * _TEXT]
                row.is_error = int(record.level in ("error", "critical"))
                row.extra = {"level": record.level}
            case StderrRecord():
                row.type, row.text = "s", record.text[:_TEXT]
            case LossRecord():
                row.is_error = 1
                row.text = f"{record.count} records are missing: they came too fast to be written"
        if isinstance(record, HandlerRecord | StderrRecord):
            row.sender = self._lane(record.component)
        elif isinstance(record, LogRecord) and record.component:
            row.sender = self._number(record.component)  # the conductor may have no messages
        return row

    def _header(self, row: Row, header: TraceHeader) -> None:
        for component in header.components:
            self._lane(component.name, component.label)
            if component.kind in _RECORDING:
                self._recording.add((header.chain, component.name))
        names = [each.name for each in header.components]
        row.type, row.text = "t", f"{header.chain or 'trace'}: {', '.join(names)}"
        row.extra = {"payloads": header.payloads, "conductor": header.conductor}

    def _message(self, row: Row, message: Message) -> None:
        row.n, row.hop, row.size = message.n, message.hop, message.size
        row.sender = self._lane(message.sender, message.from_)
        row.receiver = self._lane(message.receiver, message.to)
        row.toward_agent = int(message.toward == "agent")
        row.cause = message.cause or 0
        row.session = -1 if message.session is None else self._number(message.session)
        method, row.text = method_and_text(message)
        match message:
            case ResponseRecord():
                row.type, row.ref, row.took = "r", message.request, message.elapsed
                row.is_error, row.is_mcp = int(message.is_error), int(message.error_domain == "mcp")
                if method == "session/prompt":
                    row.extra = self._turn_end(message)
            case RequestRecord():
                row.type, row.is_mcp = "q", int(message.protocol == "mcp")
                if method == "session/prompt" and self._begins_turn(message):
                    row.extra = {"turn": 1}
            case NotificationRecord():
                row.type, row.is_mcp = "n", int(message.protocol == "mcp")
                row.ref, row.extra = message.request, self._update(message)
        row.text = row.text[:_TEXT]
        row.method = self._number(method)
        if message.count > 1:
            row.extra = (row.extra or {}) | {"count": message.count}

    def _begins_turn(self, prompt: RequestRecord) -> bool:
        """Whether the client, or a plugin of its own accord, prompts here."""
        if prompt.from_ == "Client" or prompt.hop == 0:
            return True
        cause = self._messages.get(prompt.cause or 0)
        own = (prompt.chain, prompt.sender) in self._recording
        return own and (cause is None or cause.method != "session/prompt")

    def _turn_end(self, response: ResponseRecord) -> dict[str, Any] | None:
        match response.payload:
            case dict(result) if not response.is_error:
                usage = result.get("usage")
                if response.from_ == "Agent" and "stopReason" in result:
                    self._meter(response).turn(usage if isinstance(usage, dict) else None)
                    self._report(response)
                total = usage.get("totalTokens") if isinstance(usage, dict) else None
                return {"stop": str(result.get("stopReason", ""))[:40], "tokens": total}
        return None

    def _update(self, message: NotificationRecord) -> dict[str, Any] | None:
        match message.params:
            case {"update": {"sessionUpdate": "usage_update"} as update}:
                if message.from_ == "Agent":
                    self._meter(message).update(update)
                    self._report(message)
            case {"update": {"sessionUpdate": "state_update", "stopReason": str()} as update}:
                if message.from_ == "Agent":  # the end of a version 2 turn
                    usage = update.get("usage")
                    self._meter(message).turn(usage if isinstance(usage, dict) else None)
                    self._report(message)
            case {"update": {"toolCallId": str(id)} as update}:
                told = {name: update.get(name) for name in ("title", "kind", "status")}
                kept = {name: each[:80] for name, each in told.items() if isinstance(each, str)}
                return {"tool": id[:80], **kept}
        return None

    def _meter(self, message: Message) -> UsageMeter:
        return self._meters.setdefault(_encodable(message.session or ""), UsageMeter())

    def _report(self, message: Message) -> None:
        session = _encodable(message.session or "")
        meter = self._meters[session]
        self.usage[session] = {
            "turns": meter.turns,
            "tokens": meter.tokens,
            "cost": {_encodable(name): each for name, each in meter.cost.items()},
            "used": meter.used if isinstance(meter.used, int) else None,
            "size": meter.size if isinstance(meter.size, int) else None,
        }

    def _lane(self, name: str, label: str = "") -> int:
        """The number of a component's name; the first time, a lane at its place."""
        name = _encodable(name)
        if name not in self._lanes:
            at = len(self._lanes)
            if label == "Client":
                at = 0
            elif name == "conductor":
                at = min(1, at)
            elif label != "Agent" and self._lanes and self._lanes[-1] in self._agents:
                at -= 1
            self._lanes.insert(at, name)
        if label == "Agent":
            self._agents.add(name)
        return self._number(name)

    def _number(self, name: str) -> int:
        name = _encodable(name)
        number = self._numbers.get(name)
        if number is None:
            number = self._numbers[name] = len(self.strings)
            self.strings.append(name)
        return number


def _encodable(value: Any) -> Any:
    """A value; a text without half surrogate pairs, which UTF-8 does not have."""
    if isinstance(value, str) and not value.isascii():
        return value.encode(errors="replace").decode()
    return value


def _without_payload(message: Message) -> Message:
    """The message with the digest of its payload as its `head`; equal payloads have equal ones."""
    if message.content is None:
        return message
    data = canonical_json(without_marks(message.content))
    head = hashlib.blake2b(data, digest_size=_DIGEST).hexdigest()
    if isinstance(message, ResponseRecord):
        return msgspec.structs.replace(message, payload=None, head=head, size=0)
    return msgspec.structs.replace(message, params=None, head=head, size=0)
