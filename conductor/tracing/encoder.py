"""Make records, as lines of JSON, of the entries of recorders.

Payloads are written as they came; secrets are masked in the lines of all entries together
(`masking`). Records are numbered in the order of their entries.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final, Literal, NamedTuple, TypeAlias

import attrs
import msgspec
from msgspec import Raw

from conductor import __version__
from conductor.acp import SESSION_SETUP_METHODS, session_id_of
from conductor.jsonrpc.codec import DECODE_ERRORS
from conductor.jsonrpc.messages import CANCEL, Payload
from conductor.jsonrpc.notification_batch import NotificationBatch, params_at_start
from conductor.routing.trace import KeptPayload, Mark, TraceStage
from conductor.secrets.masking import mask
from conductor.tracing.recorder import (
    Entry,
    HandlerEntry,
    LogEntry,
    LossEntry,
    Passage,
    StartEntry,
    StderrEntry,
    TraceRecorder,
)
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
from conductor.tracing.trace_component import TraceComponent

__all__ = ["Encoder", "Payloads"]

_MCP: Final = "mcp/message"
Payloads: TypeAlias = Literal["full", "head", "none"]
_HEAD: Final = 512
"""Bytes of a payload that a record keeps as `head` if it leaves the payload out."""
_MASKED_HEAD: Final = 2048
_SESSION: Final = re.compile(rb'"sessionId"\s*:\s*"([^"\\]*)"')
_session_first: Final = re.compile(rb'\{"sessionId":"([^"\\]*)"').match
_LF: Final = ord("\n")
"""An int: found in 0.03 µs, a bytes object in 0.2."""
_CR: Final = ord("\r")
_NO_PARAMS: Final = b'"params":null}'
_encode: Final = msgspec.json.Encoder().encode


_Hop: TypeAlias = tuple[str, int]
"""Name of the chain, and number of the hop in it."""


class _OpenRequest(msgspec.Struct, gc=False):
    """A request without a response."""

    n: int
    time: float
    port: TraceStage
    method: str
    protocol: Literal["acp", "mcp"]
    session: str | None
    before: _OpenRequest | None = None
    """The same request, when it passed this hop before."""
    is_cancelled: bool = False
    """Whether the cancellation has a record."""


class _OpenRequests(dict[tuple[int, _Hop], _OpenRequest]):
    """The requests in flight on each hop, by the identity of the request, and hop.

    A request that an inserted component passes on as it is passes the hop twice, and its response
    in reverse order.
    """

    def add(self, call: int, hop: _Hop, request: _OpenRequest) -> None:
        """A request passes a hop."""
        request.before = self.get((call, hop))
        self[call, hop] = request

    def answered(self, call: int, hop: _Hop, method: str) -> _OpenRequest | None:
        """The request that is answered on this hop; it is not open any more.

        The startup gate sends an `initialize` of its own, and answers the client's.
        """
        key = call, hop
        found = self.pop(key, None)
        if found is None and method == "initialize":
            for key, request in self.items():
                if key[1] == hop and request.method == method:
                    return self.pop(key)
        if found is not None and found.before is not None:
            self[key] = found.before
        return found

    def cancelled(self, call: int, hops: Iterable[_Hop]) -> list[_OpenRequest]:
        """The requests on these hops, in order, that were not cancelled before."""
        new: list[_OpenRequest] = []
        for hop in hops:
            request = self.get((call, hop))
            while request is not None:
                if not request.is_cancelled:
                    request.is_cancelled = True
                    new.append(request)
                request = request.before
        return sorted(new, key=lambda request: request.n)


@attrs.define(eq=False, repr=False)
class Encoder:
    """Numbers and encodes the entries of one file; several chains may take turns in it."""

    payloads: Payloads = "full"
    last: int = attrs.field(default=0, init=False)
    """The highest number of a record."""
    _open: _OpenRequests = attrs.field(factory=_OpenRequests, init=False)

    def header(self, recorder: TraceRecorder, components: Sequence[TraceComponent]) -> bytes:
        """The line that begins a file, and each chain in it; not masked."""
        return _encode(self._start(recorder, components)) + b"\n"

    def encode(self, entries: Iterable[Entry]) -> bytes:
        """The lines of entries, several for a batch of notifications, with secrets masked."""
        lines: list[bytes] = []
        for entry in entries:
            if isinstance(entry, tuple):
                passage = Passage(*entry)
                batch = passage.payload
                if isinstance(batch, NotificationBatch) and self._are_whole_lines(passage, batch):
                    lines += self._update_lines(passage, batch)
                else:
                    lines += map(_encode, self._messages(passage))
            else:
                lines.append(_encode(self._event(entry)))
        lines.append(b"")
        return mask(b"\n".join(lines), are_lines=True)

    def _are_whole_lines(self, passage: Passage, batch: NotificationBatch) -> bool:
        is_acp = passage.method != _MCP and self.payloads == "full"
        return is_acp and batch.lines is not None and _CR not in batch.lines

    # -- messages ----------------------------------------------------------------------------------

    def _messages(self, passage: Passage) -> Iterator[Record]:
        """The records of a message or a batch."""
        if passage.kind == "request":
            yield self._request(passage)
        elif passage.kind != "notification":
            yield self._response(passage)
        elif passage.call:
            yield from self._cancellations(passage)
        elif isinstance(passage.payload, NotificationBatch):
            yield from self._batch(passage, passage.payload)
        else:
            yield self._notification(passage)

    def _notification(self, passage: Passage) -> NotificationRecord:
        return NotificationRecord(**self._sent(passage))

    def _sent(self, passage: Passage) -> dict[str, Any]:
        """The members of a request or notification."""
        data, size, count, is_whole = _kept(passage.payload)
        inner = _inner_message(passage.method, data)
        params, head, masked = _shown(inner.params, self.payloads, is_whole=is_whole)
        return {
            **_hop_members(passage.time, passage.port, passage.port.sender),
            "n": self._take(passage.mark),
            "session": _session_of(data, is_whole=is_whole),
            "size": size,
            "count": count,
            "head": head,
            "masked": masked,
            "protocol": inner.protocol,
            "method": inner.method,
            "params": params,
            "cause": _number(passage.cause),
            "mcp_server": inner.server,
        }

    def _batch(self, passage: Passage, batch: NotificationBatch) -> Iterator[NotificationRecord]:
        if passage.mark is not None:
            self._take(passage.mark, batch.count)
        for index, params in enumerate(map(bytes, batch.params)):
            mark = None if passage.mark is None else passage.mark.part(index)
            cause = None if passage.cause is None else passage.cause.part(index)
            yield self._notification(passage._replace(payload=params, mark=mark, cause=cause))

    def _update_lines(self, passage: Passage, batch: NotificationBatch) -> list[bytes]:
        """The lines of an agent's updates, most of what passes: one record is encoded for those of
        a session, and the members that differ are put into its line, in a third of the time."""
        first, cause = self._take(passage.mark, batch.count), _number(passage.cause)
        record = NotificationRecord(
            **_hop_members(passage.time, passage.port, passage.port.sender),
            protocol="acp",
            method=passage.method,
            params=None,
        )
        beginning, start = b"", b""
        lines = []
        for n, params in enumerate(map(bytes, batch.params), first):
            if not beginning or not params.startswith(beginning):
                beginning, record.session = _session_beginning(params), _session_of(params)
                start = _encode(record).removesuffix(_NO_PARAMS)
            if cause is None:
                lines.append(b'%b"n":%d,"size":%d,"params":%b}' % (start, n, len(params), params))
            else:
                about = start, cause, n, len(params), params
                lines.append(b'%b"cause":%d,"n":%d,"size":%d,"params":%b}' % about)
                cause += 1
        return lines

    def _request(self, passage: Passage) -> RequestRecord:
        members = self._sent(passage)
        record = RequestRecord(**members, id=members["n"], wire_id=passage.detail)
        about = record.method, record.protocol, record.session
        request = _OpenRequest(record.n, passage.time, passage.port, *about)
        self._open.add(passage.call, (record.chain, record.hop), request)
        return record

    def _response(self, passage: Passage) -> ResponseRecord:
        data, size, _, is_whole = _kept(passage.payload)
        payload, head, masked = _shown(data, self.payloads, is_whole=is_whole)
        is_error = passage.kind == "error"
        record = ResponseRecord(
            **_hop_members(passage.time, passage.port, passage.port.sender),
            n=self._take(passage.mark),
            id=None,
            is_error=is_error,
            error_domain="acp" if is_error else None,
            method=passage.method,
            size=size,
            head=head,
            masked=masked,
            payload=payload,
            cause=_number(passage.cause),
        )
        request = self._open.answered(passage.call, (record.chain, record.hop), passage.method)
        if request is None:
            record.id = record.n
        else:
            record.id = record.request = request.n
            record.method, record.session = request.method, request.session
            record.elapsed = _seconds(passage.time - request.time)
            record.cancelled = bool(passage.detail)
            if is_error:
                record.error_domain = request.protocol
        if record.method in SESSION_SETUP_METHODS and not is_error and is_whole:
            record.session = _session_of(data) or record.session
        return record

    def _cancellations(self, passage: Passage) -> Iterator[NotificationRecord]:
        """The records of a cancellation: one for each hop that the open request has passed.

        If the conductor cancelled it, there is one, for the hop of the port. A request without a
        record, of the conductor's own, has none.
        """
        recorder = _recorder_of(passage.port)
        hops: Iterable[int] = (recorder.hop(passage.port),)
        if passage.detail:
            hops = range(len(recorder.components))
        cancelled = self._open.cancelled(passage.call, ((recorder.chain, hop) for hop in hops))
        if not cancelled:
            return
        first = self._take(passage.mark, len(cancelled))
        for n, request in enumerate(cancelled, first):
            sender = request.port.sender if passage.detail else "conductor"
            params = b'{"requestId":%d}' % request.n
            yield NotificationRecord(
                **_hop_members(passage.time, request.port, sender),
                n=n,
                session=request.session,
                size=len(params),
                protocol="acp",
                method=CANCEL,
                params=Raw(params),
                request=request.n,
            )

    def _take(self, mark: Mark | None, count: int = 1) -> int:
        """The number of the next record, of the first one of several.

        One that was written before keeps its number: the flight recorder is written several times,
        and others may have named it as their cause.
        """
        if mark is not None and mark.n is not None:
            self.last = max(self.last, mark.n + count - 1)
            return mark.n
        first = self.last + 1
        self.last += count
        if mark is not None:
            mark.n = first
        return first

    # -- events ------------------------------------------------------------------------------------

    def _event(
        self, entry: HandlerEntry | LogEntry | StderrEntry | StartEntry | LossEntry
    ) -> Record:
        match entry:
            case HandlerEntry():
                return _handled(entry)
            case LogEntry():
                return _logged(entry)
            case StderrEntry():
                return _stderr(entry)
            case StartEntry(recorder, components):
                return self._start(recorder, components)
            case LossEntry(recorder, time, count):
                return LossRecord(**_when(recorder, time), count=count)

    def _start(self, recorder: TraceRecorder, components: Sequence[TraceComponent]) -> TraceHeader:
        return TraceHeader(
            ts=0.0,
            time=_seconds(recorder.started_at),
            chain=recorder.chain,
            conductor=__version__,
            pid=os.getpid(),
            payloads=self.payloads,
            components=tuple(components),
        )


def _hop_members(time: float, port: TraceStage, sender: str) -> dict[str, Any]:
    """The members of a message to a port that tell when and where it passed."""
    recorder = _recorder_of(port)
    return {**_when(recorder, time), **recorder.place(port, sender)}


def _recorder_of(port: TraceStage) -> TraceRecorder:
    recorder = port.tracer
    assert isinstance(recorder, TraceRecorder)
    return recorder


def _number(mark: Mark | None) -> int | None:
    return None if mark is None else mark.n


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
    return LogRecord(
        **_when(entry.recorder, entry.time),
        level=entry.level,
        event=entry.event,
        component=entry.component,
        message=None if entry.message is None else entry.message.n,
        fields={name: _plain(value) for name, value in entry.fields.items()},
    )


def _stderr(entry: StderrEntry) -> StderrRecord:
    when = _when(entry.recorder, entry.time)
    return StderrRecord(**when, component=entry.component, text=entry.text)


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


# -- payloads --------------------------------------------------------------------------------------


class _McpMessage(msgspec.Struct):
    """Params of `mcp/message`."""

    method: str
    params: Raw = Raw(b"null")
    serverId: str | None = None
    connectionId: str | None = None
    acpId: str | None = None


_decode_mcp: Final = msgspec.json.Decoder(_McpMessage).decode


class _InnerMessage(NamedTuple):
    """A message without the envelope of `mcp/message`."""

    protocol: Literal["acp", "mcp"]
    server: str | None
    method: str
    params: bytes | None


def _shown(
    data: Payload | None, payloads: Payloads, *, is_whole: bool = True
) -> tuple[Raw | None, str | None, bool]:
    """The payload on one line; or its beginning, and whether something in that is masked."""
    if data is None:
        return None, None, False
    if is_whole and (payloads == "full" or (payloads == "head" and len(data) <= _HEAD)):
        data = bytes(data)
        if _LF in data or _CR in data:
            data = data.replace(b"\n", b" ").replace(b"\r", b" ")
        return Raw(data), None, False
    if payloads == "none":
        return None, None, False
    # Masked before it is cut: the rest of a secret would not be recognized.
    beginning = bytes(data)[:_MASKED_HEAD]
    masked = mask(beginning)
    return None, masked[:_HEAD].decode(errors="replace"), masked is not beginning


def _kept(payload: KeptPayload) -> tuple[bytes | None, int, int, bool]:
    """`(kept bytes or None, bytes of the whole payload, number of messages, is it whole)`."""
    if payload is None:
        return None, 0, 1, True
    if isinstance(payload, tuple):
        start, size, messages = payload
        return params_at_start(start), size, messages, False
    assert not isinstance(payload, NotificationBatch)
    return bytes(payload), len(payload), 1, True


def _session_of(data: Payload | None, *, is_whole: bool = True) -> str | None:
    """The session id in params or a result."""
    if data is None:
        return None
    found = _session_first(data) if is_whole else _SESSION.search(data)
    if found is not None:
        return found[1].decode(errors="replace")
    return session_id_of(bytes(data)) if is_whole else None


def _session_beginning(params: bytes) -> bytes:
    """Params up to the end of the session id; empty if that does not come first."""
    found = _session_first(params)
    return b"" if found is None else found[0]


def _inner_message(method: str, data: bytes | None) -> _InnerMessage:
    """The message in an `mcp/message`; any other is its own."""
    if method != "mcp/message" or data is None:
        return _InnerMessage("acp", None, method, data)
    try:
        inner = _decode_mcp(data)
    except DECODE_ERRORS:
        return _InnerMessage("acp", None, method, data)
    server = inner.serverId or inner.connectionId or inner.acpId
    return _InnerMessage("mcp", server, inner.method, bytes(inner.params))
