"""Make records, as lines of JSON, of the entries of recorders. Pure.

Payloads are written as they came; secrets in the lines are masked afterwards (`masking`). Records
are numbered in the order of their entries.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from typing import Any, Final, Literal, TypeAlias

import attrs
import msgspec

from conductor import __version__
from conductor.acp import SESSION_SETUP_METHODS, session_id_of
from conductor.jsonrpc.codec import DECODE_ERRORS
from conductor.jsonrpc.notification_batch import (
    SESSION_UPDATE,
    NotificationBatch,
    params_at_start,
)
from conductor.redaction import redact, redact_value
from conductor.routing.traced_port import Mark, Passage
from conductor.tracing.masking import mask
from conductor.tracing.recorder import Began, Entry, Handled, Logged, Lost, Recorder, StderrLine
from conductor.tracing.records import (
    HandlerRecord,
    LogRecord,
    LossRecord,
    Record,
    StderrRecord,
    TraceComponent,
    TraceHeader,
)

__all__ = ["Encoder", "Payloads"]

Payloads: TypeAlias = Literal["full", "head", "none"]
_HEAD: Final = 512
"""Bytes of a payload that are shown if it is left out."""
_MASKED_HEAD: Final = 2048
_SESSION: Final = re.compile(rb'"sessionId"\s*:\s*"([^"\\]*)"')
_encode: Final = msgspec.json.Encoder().encode


class _McpMessage(msgspec.Struct):
    """Params of `mcp/message`."""

    method: str
    params: msgspec.Raw = msgspec.Raw(b"null")
    serverId: str | None = None
    connectionId: str | None = None
    acpId: str | None = None


_decode_mcp: Final = msgspec.json.Decoder(_McpMessage).decode


@attrs.define(eq=False, repr=False)
class _OpenRequest:
    """A request that has passed a hop and was not answered there yet."""

    n: int
    time: float
    method: str
    protocol: str
    session: str | None


@attrs.define(eq=False, repr=False)
class Encoder:
    """Numbers and encodes the entries of one file; several chains may take turns in it."""

    payloads: Payloads = "full"
    number: int = attrs.field(default=0, init=False)
    """Of the last record."""
    _open: dict[tuple[str, int, int], list[_OpenRequest]] = attrs.field(factory=dict, init=False)
    """By chain, identity of the request, and hop. A request that an inserted component passes on as
    it is passes the hop twice, and its response in reverse order."""

    def header(self, recorder: Recorder, components: Sequence[TraceComponent]) -> bytes:
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

    def encode(self, entry: Entry) -> Iterator[bytes]:
        """The lines of one entry, several for a batch of notifications."""
        match entry:
            case tuple():
                yield from self._messages(Passage(*entry))
            case Handled():
                yield _line(_handled(entry))
            case Logged():
                yield _line(_logged(entry))
            case StderrLine():
                yield _line(_stderr(entry))
            case Began(recorder, components):
                yield self.header(recorder, components)
            case Lost(recorder, time, count):
                seconds = _seconds(time - recorder.started)
                yield _line(LossRecord(ts=seconds, chain=recorder.chain, count=count))

    def _messages(self, passage: Passage) -> Iterator[bytes]:
        payload = passage.payload
        if isinstance(payload, NotificationBatch):
            first = self.number + 1
            lines = self._update_lines(passage, payload) if self.payloads == "full" else None
            if lines is not None:
                yield from lines
            for index, params in enumerate(payload.params if lines is None else ()):
                cause = None if passage.cause is None else passage.cause.part(index)
                one = passage._replace(payload=bytes(params), mark=None, cause=cause)
                yield self._message(one)
            if passage.mark is not None:
                passage.mark.n = first
        else:
            yield self._message(passage)

    def _update_lines(self, passage: Passage, updates: NotificationBatch) -> list[bytes] | None:
        """The lines of updates of one session; `None` for other notifications.

        What they have in common is encoded once: half a microsecond for an update of 100 bytes,
        instead of four and a half.
        """
        block = updates.as_lines(b"", b"\n")
        params = block.split(b"\n")
        params.pop()
        session = session_id_of(params[0])
        start = b'{"sessionId":%b,' % _encode(session)
        if (
            updates.method != SESSION_UPDATE
            or session is None
            or block.count(start) != len(params)
            or not all(each.startswith(start) for each in params)
        ):
            return None
        port = passage.port
        recorder = port.tracer
        assert isinstance(recorder, Recorder)
        head = _encode(
            {
                "type": "notification",
                **_when(recorder, passage.time),
                "protocol": "acp",
                "from": recorder.label(port.sender),
                "to": recorder.label(port.component),
                "method": updates.method,
                "session": session,
                "sender": port.sender,
                "receiver": port.component,
                "hop": recorder.hop(port),
            }
        )[:-1]
        first = self.number + 1
        self.number += len(params)
        cause = None if passage.cause is None else passage.cause.n
        if cause is None:
            return [
                b'%b,"n":%d,"size":%d,"params":%b}\n' % (head, n, len(each), each)
                for n, each in enumerate(params, first)
            ]
        return [
            b'%b,"n":%d,"cause":%d,"size":%d,"params":%b}\n'
            % (head, n, n - first + cause, len(each), each)
            for n, each in enumerate(params, first)
        ]

    def _message(self, passage: Passage) -> bytes:
        recorder = passage.port.tracer
        assert isinstance(recorder, Recorder)
        n = self._numbered(passage.mark)
        time, port, kind, method, payload, call, detail, _, cause = passage
        sender, receiver = port.sender, port.component
        hop = recorder.hop(port)
        request = None
        is_whole, messages = not isinstance(payload, tuple), 1
        if isinstance(payload, tuple):
            start, size, messages = payload
            data: bytes | None = params_at_start(start)
        else:
            assert not isinstance(payload, NotificationBatch)
            data, size = payload, len(payload or b"")
        record: dict[str, Any] = {
            "type": "response" if kind == "error" else kind,
            "ts": _seconds(time - recorder.started),
        }
        protocol, server = "acp", None
        if kind in ("response", "error"):
            request = self._answered(recorder.chain, call, hop, method)
            session = None if request is None else request.session
            if request is not None:
                protocol, method = request.protocol, request.method
            if kind == "response" and method in SESSION_SETUP_METHODS and is_whole:
                session = session_id_of(data) or session
        else:
            session = session_id_of(data) if is_whole else _session_in(data)
            if method == "mcp/message" and is_whole and data is not None:
                protocol, server, method, data = _unwrapped(method, data)
            record["protocol"] = protocol
        record["from"] = recorder.label(sender)
        record["to"] = recorder.label(receiver)
        if kind == "request":
            record["id"] = n
            opened = _OpenRequest(n, time, method, protocol, session)
            self._open.setdefault((recorder.chain, call, hop), []).append(opened)
        elif kind != "notification":
            record["id"] = n if request is None else request.n
            record["is_error"] = kind == "error"
            if kind == "error":
                record["error_domain"] = protocol
        record["method"] = method
        if session is not None:
            record["session"] = session
        record |= {"n": n, "time": _seconds(recorder.started_at + time - recorder.started)}
        record |= {"chain": recorder.chain, "sender": sender, "receiver": receiver, "hop": hop}
        record["size"] = size
        if messages > 1:
            record["count"] = messages
        if cause is not None and cause.n is not None:
            record["cause"] = cause.n
        if server is not None:
            record["mcp_server"] = server
        if kind == "request":
            record["wire_id"] = detail
        elif request is not None:
            record["request"] = request.n
            record["elapsed"] = _seconds(time - request.time)
            if detail:
                record["cancelled"] = True
        key = "params" if kind in ("request", "notification") else "payload"
        return _with_payload(record, key, data, is_whole, self.payloads)

    def _numbered(self, mark: Mark | None) -> int:
        """The number of the next record. One that was written before keeps its number: the flight
        recorder is written several times, and others may have named it as their cause."""
        if mark is not None and mark.n is not None:
            self.number = max(self.number, mark.n)
            return mark.n
        self.number += 1
        if mark is not None:
            mark.n = self.number
        return self.number

    def _answered(self, chain: str, call: int, hop: int, method: str) -> _OpenRequest | None:
        """The request that is answered on this hop; it is not open any more.

        The startup gate sends an `initialize` of its own, and answers the client's.
        """
        found = self._open.get((chain, call, hop))
        if found is not None:
            if len(found) == 1:
                del self._open[chain, call, hop]
            return found.pop()
        if method == "initialize":
            for key, requests in self._open.items():
                if key[::2] == (chain, hop) and requests[0].method == method:
                    return self._open.pop(key)[0]
        return None


def _handled(entry: Handled) -> HandlerRecord:
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


def _logged(entry: Logged) -> LogRecord:
    fields = redact_value(entry.fields)
    return LogRecord(
        **_when(entry.recorder, entry.time),
        level=entry.level,
        event=redact(entry.event),
        component=entry.component,
        message=None if entry.message is None else entry.message.n,
        fields={name: _plain(value) for name, value in fields.items()},
    )


def _stderr(entry: StderrLine) -> StderrRecord:
    when = _when(entry.recorder, entry.time)
    return StderrRecord(**when, component=entry.component, text=redact(entry.text))


def _when(recorder: Recorder, time: float) -> dict[str, Any]:
    """The chain, and the time on both clocks."""
    since = time - recorder.started
    return {
        "ts": _seconds(since),
        "time": _seconds(recorder.started_at + since),
        "chain": recorder.chain,
    }


def _with_payload(
    record: dict[str, Any],
    key: str,
    data: bytes | None,
    is_whole: bool,
    payloads: Payloads,
) -> bytes:
    """The line of a message: the payload as it came, or its beginning, or nothing."""
    if data is None:
        return _encode(record | {key: None}) + b"\n"
    if is_whole and (payloads == "full" or (payloads == "head" and len(data) <= _HEAD)):
        flat = data.replace(b"\n", b" ").replace(b"\r", b" ")
        return b'%b,"%b":%b}\n' % (_encode(record)[:-1], key.encode(), flat)
    if payloads != "none":
        # Masked before it is cut: the rest of a secret would not be recognized.
        beginning = data[:_MASKED_HEAD]
        masked = mask(beginning)
        if masked is not beginning:
            record["masked"] = True
        record["head"] = masked[:_HEAD].decode(errors="replace")
    return _encode(record | {key: None}) + b"\n"


def _unwrapped(method: str, data: bytes) -> tuple[str, str | None, str, bytes]:
    """Protocol, server, method and params of the message in an `mcp/message`."""
    try:
        inner = _decode_mcp(data)
    except DECODE_ERRORS:
        return "acp", None, method, data
    server = inner.serverId or inner.connectionId or inner.acpId
    return "mcp", server, inner.method, bytes(inner.params)


def _session_in(head: bytes | None) -> str | None:
    """The session id at the beginning of params that are not whole."""
    found = None if head is None else _SESSION.search(head)
    return None if found is None else found[1].decode()


def _plain(value: Any) -> Any:
    """A field of a log event, as JSON can have it."""
    return value if isinstance(value, str | int | float | bool | None) else str(value)


def _seconds(seconds: float) -> float:
    return round(seconds, 6)


def _line(record: Record) -> bytes:
    return _encode(record) + b"\n"
