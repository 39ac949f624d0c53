"""One JSON-RPC peer: decodes and dispatches messages, matches responses to in-flight requests.

Everything here is synchronous: a chunk is split, decoded and routed in one step, and the resulting
messages are flushed once at its end (`io_loop`). Rules: one response per id; a
batch is answered with one array and never forwarded; ids belong to the connection; a malformed
response settles the request that it names.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Final, Protocol

from msgspec import UNSET

from conductor.errors import ConnectionClosed
from conductor.json_values import NestedTooDeeply
from conductor.jsonrpc.codec import (
    Batch,
    Frame,
    Malformed,
    decode,
    oversized_line,
    strip_ansi,
)
from conductor.jsonrpc.in_flight import BatchResponse, InFlightRequest
from conductor.jsonrpc.line_framing import BlockSplitter, OverlongLine
from conductor.jsonrpc.messages import (
    INVALID_REQUEST,
    Id,
    Message,
    Payload,
    Pieces,
    encode_error,
    error_pieces,
    result_pieces,
)
from conductor.jsonrpc.notification_batch import NotificationBatch, split_block
from conductor.jsonrpc.write_buffer import WriteBuffer
from conductor.limits import Limits

if TYPE_CHECKING:
    from conductor.transport.base import Transport

__all__ = ["Connection", "FlushScheduler", "Receiver"]

_EXHAUSTED: Final = object()
_INVALID: Final = encode_error(INVALID_REQUEST, "Invalid request")
_TOO_DEEP: Final = (NestedTooDeeply, RecursionError)
"""Of a value that a receiver decodes. `RecursionError`: of a part that it skips, nearly as deep as
the envelope's decoder can read."""

_LINES_PER_STEP: Final = 256
"""Single lines routed in one step: a few milliseconds, even if each is malformed."""
_BATCH_MEMBER_COST: Final = 4
"""Lines that one member of a batch counts as: a member of a few bytes costs as much to route."""


def _ignore_blocked() -> None:
    pass


class Receiver(Protocol):
    """Callbacks of a connection for the messages of its peer."""

    def on_request(self, call: InFlightRequest, method: str, params: Payload | None) -> None: ...

    def on_notifications(self, run: NotificationBatch) -> None:
        """Take two or more consecutive notifications of one method."""

    def on_notification(self, method: str, params: Payload | None) -> None: ...

    def on_response(
        self, call: InFlightRequest, result: Payload | None, error: Payload | None
    ) -> None: ...

    def on_malformed(self, frame: Malformed, call: InFlightRequest | None) -> None:
        """Take an invalid line; `call` is the request that it answers, if known."""


class FlushScheduler(Protocol):
    """Flushes the connections that have unwritten messages."""

    @property
    def flush_soon(self) -> Callable[[Callable[[], object]], object]:
        """Calls the function that flushes one, once the messages at hand are routed."""


class Connection:
    """The state of one peer.

    `answers_malformed`: answer invalid lines with errors, for clients; terminal sequences in lines
    are removed for components only. Components get an answer only for a request that is too long or
    too deep, or a batch over the limit.
    """

    def __init__(
        self,
        transport: Transport,
        receiver: Receiver,
        flusher: FlushScheduler,
        *,
        answers_malformed: bool = False,
        limits: Limits | None = None,
        repeats_payloads: bool = False,
    ) -> None:
        self.transport = transport
        self.receiver = receiver
        self.flusher = flusher
        self.answers_malformed = answers_malformed
        self.limits: Limits = limits or Limits()
        self.repeats_payloads = repeats_payloads
        """Whether large payloads are read from this peer and from others too."""
        self.write_buffer: WriteBuffer = WriteBuffer()
        self.sent: dict[Id, InFlightRequest] = {}
        """Requests that the peer has not answered yet, by the conductor's ids."""
        self.received: dict[Id, InFlightRequest] = {}
        """Unanswered requests of the peer, by its ids; of equal ids the newest."""
        self.duplicate_id_requests: dict[InFlightRequest, None] = {}
        """Older unanswered requests of the peer with an id that it used again."""
        self.needs_flush: bool = False
        self.closed: bool = False
        """Nothing can be written any more."""
        self.closing: bool = False
        """Writing ends when the write buffer is empty."""
        self.on_blocked: Callable[[], object] = _ignore_blocked
        """Called when the peer did not accept everything, or closed its reading side."""
        self._splitter = BlockSplitter(self.limits.max_message_bytes)
        self._unrouted: Iterator[NotificationBatch | bytes | OverlongLine] | None = None
        self._batch: Iterator[None] | None = None
        """Routes one member per step of the batch read last, before `_unrouted`."""
        self._last_id = 0

    # -- received from the peer ------------------------------------------------------------------

    def feed(self, chunk: bytes) -> None:
        """Route all lines that this chunk completes: each run of notifications as one."""
        more = self.feed_partial(chunk)
        while more:
            more = self.route_more()

    def feed_partial(self, chunk: bytes) -> bool:
        """Route at most `_LINES_PER_STEP` single lines, or a part of a batch; true if `route_more`
        has to be called for the rest."""
        blocks = self._splitter.feed(chunk)
        if not blocks:
            return False
        block = blocks[0]
        if len(blocks) == 1 and type(block) is bytes and block.find(b"\n") == len(block) - 1:
            self._dispatch(decode(block, may_be_copy=self.repeats_payloads), block)
            return self._batch is not None and self.route_more()
        self._unrouted = _split_blocks(blocks)
        return self.route_more()

    def route_more(self) -> bool:
        """Route more of the last chunk; true if there is still more."""
        left = self._route_batch(_LINES_PER_STEP)
        if self._unrouted is None or not left:
            return not left
        for part in self._unrouted:
            if type(part) is NotificationBatch:
                try:
                    self.receiver.on_notifications(part)
                except _TOO_DEEP:
                    self.receiver.on_malformed(_too_deep(), None)
                continue
            if type(part) is OverlongLine:
                self._answer_overlong(part)
            else:
                self._dispatch(decode(part, may_be_copy=self.repeats_payloads), part)
            left = self._route_batch(left - 1)
            if not left:
                return True
        self._unrouted = None
        return False

    def _route_batch(self, left: int) -> int:
        """Route members of the current batch within the budget `left`; returns the rest of it."""
        while self._batch is not None and left:
            if next(self._batch, _EXHAUSTED) is _EXHAUSTED:
                self._batch = None
            left = max(0, left - _BATCH_MEMBER_COST)
        return left

    def end(self) -> None:
        """Route the last line at the end of the stream, if it had no newline."""
        while self.route_more():
            pass
        line = self._splitter.end()
        if isinstance(line, OverlongLine):
            self._answer_overlong(line)
        elif line is not None:
            self._dispatch(decode(line), line)
        while self.route_more():
            pass

    def _take_odd(self, frame: Frame, line: bytes) -> None:
        """Route a batch, or answer a line that is no message."""
        if type(frame) is Batch:
            self._batch = self._route_batch_members(frame)
        elif not line.isspace():  # a blank line is neither a message nor malformed
            stripped = line if self.answers_malformed else strip_ansi(line)
            if stripped != line:
                frame = decode(stripped)
            if isinstance(frame, Malformed):
                self._answer_malformed(frame, stripped)
            else:
                self._dispatch(frame, stripped)

    def _dispatch(
        self, message: Frame, line: bytes = b"", batch: BatchResponse | None = None, slot: int = 0
    ) -> None:
        if type(message) is not Message:
            self._take_odd(message, line)
            return
        method, params = message.method, message.params
        if method is not UNSET:
            payload = None if params is UNSET else params
            if message.id is UNSET:
                try:
                    self.receiver.on_notification(method, payload)
                except _TOO_DEEP:
                    self.receiver.on_malformed(_too_deep(), None)
                return
            call = InFlightRequest(method, self, message.id, batch, slot)
            if (
                len(self.received) + len(self.duplicate_id_requests)
                >= self.limits.max_open_requests
            ):
                self._refuse(call, f"more than {self.limits.max_open_requests} open requests")
                return
            if message.id in self.received:
                self.duplicate_id_requests[self.received[message.id]] = None
            self.received[message.id] = call
            try:
                self.receiver.on_request(call, method, payload)
            except _TOO_DEEP:
                self._refuse(call, _too_deep().reason)
            return
        call_or_none = self.sent.pop(message.id, None)  # type: ignore[arg-type]
        if call_or_none is None:
            reason = f"an answer to no request (id {message.id!r})"
            frame = Malformed(INVALID_REQUEST, reason, "", message.id, response=True)
            self.receiver.on_malformed(frame, None)
            return
        result, error = message.result, message.error
        try:
            self.receiver.on_response(
                call_or_none,
                None if result is UNSET else result,
                None if error is UNSET else error,
            )
        except _TOO_DEEP:
            self.receiver.on_malformed(_too_deep(), call_or_none)

    def _refuse(self, call: InFlightRequest, reason: str) -> None:
        """Answer a request over a limit with an error; it is not forwarded."""
        self.receiver.on_malformed(Malformed(INVALID_REQUEST, reason, ""), None)
        self.respond(call, None, encode_error(INVALID_REQUEST, reason))

    def _route_batch_members(self, frame: Batch) -> Iterator[None]:
        """Route one member per step of the iterator."""
        count, limit = len(frame.raw), self.limits.max_batch
        if count > limit:
            reason = f"a batch of {count} is over the limit of {limit}"
            self._report_malformed(Malformed(INVALID_REQUEST, f"{reason} (max_batch)", ""))
            self.write(error_pieces(None, encode_error(INVALID_REQUEST, reason)))
            for member in frame.members:
                if type(member) is Message and member.method is UNSET:
                    self._dispatch(member)  # a response adds no load, and its request waits for it
                yield
            return
        batch = BatchResponse()
        for member in frame.members:
            if type(member) is Message:
                is_request = member.method is not UNSET and member.id is not UNSET
                self._dispatch(member, b"", batch, batch.reserve() if is_request else 0)
            elif isinstance(member, Malformed):
                if self.answers_malformed and not member.response:
                    slot = batch.reserve()
                    batch.fill(slot, _joined_line(error_pieces(None, _INVALID)))
                self._report_malformed(member)
            yield
        batch.sealed = True
        self._finish_batch(batch)

    def _answer_overlong(self, line: OverlongLine) -> None:
        frame = oversized_line(line.head, line.tail, line.size, self.limits.max_message_bytes)
        if self.answers_malformed and not frame.response:
            id = None if frame.id is UNSET else frame.id
            self.write(error_pieces(id, encode_error(frame.code, frame.reason)))
        elif not frame.response and frame.id is not UNSET:
            # An overlong request of a component is answered too: the component waits for it.
            self.write(error_pieces(frame.id, encode_error(frame.code, frame.reason)))
        self._report_malformed(frame)

    def _answer_malformed(self, frame: Malformed, line: bytes) -> None:
        if frame.too_deep and frame.id is not UNSET and not frame.response:
            # It looks like a valid request: its sender waits for the response.
            error = encode_error(frame.code, f"Invalid request: {frame.reason}")
            self.write(error_pieces(frame.id, error))
        elif self.answers_malformed and not frame.response:
            if frame.code == INVALID_REQUEST:
                error = _INVALID
            else:
                text = line[:1000].removesuffix(b"\n").decode(errors="backslashreplace")
                error = encode_error(frame.code, "Parse error", {"line": text})
            self.write(error_pieces(None, error))
        self._report_malformed(frame)

    def _report_malformed(self, frame: Malformed) -> None:
        """Report a malformed line, and settle the request that it answers."""
        settles = (frame.response or frame.lacks_payload) and frame.id is not UNSET
        call = self.sent.pop(frame.id, None) if settles else None  # type: ignore[arg-type]
        self.receiver.on_malformed(frame, call)

    def unanswered(self) -> list[InFlightRequest]:
        """All unanswered requests of the peer."""
        return [*self.duplicate_id_requests, *self.received.values()]

    # -- sent to the peer -------------------------------------------------------------

    def open(self, call: InFlightRequest) -> int:
        """Allocate the id for forwarding a request; its response goes to the receiver."""
        self._last_id = id = self._last_id + 1
        call.target_id = id
        self.sent[id] = call
        return id

    def respond(self, call: InFlightRequest, result: Payload | None, error: Payload | None) -> None:
        """Answer a request of the peer; a second response is ignored."""
        if call.answered:
            return
        call.answered = True
        if self.received.get(call.source_id) is call:
            del self.received[call.source_id]
        else:
            self.duplicate_id_requests.pop(call, None)
        if result is not None:
            pieces = result_pieces(call.source_id, result)
        else:
            assert error is not None
            pieces = error_pieces(call.source_id, error)
        if call.batch is None:
            self.write(pieces)
        else:
            call.batch.fill(call.slot, _joined_line(pieces))
            self._finish_batch(call.batch)

    def write(self, pieces: Pieces) -> None:
        if self.closed:
            return
        self.write_buffer.unflushed += pieces
        if not self.needs_flush:
            self.needs_flush = True
            self.flusher.flush_soon(self.flush)

    def flush(self) -> None:
        """Write as much as the peer accepts now."""
        self.needs_flush = False
        if self.closed:
            return
        try:
            empty = self.write_buffer.flush(self.transport.write_now)
        except ConnectionClosed:
            self.abort_writing()
            self.on_blocked()  # wakes the write loop, which sees that the connection is closed
            return
        if not empty:
            self.on_blocked()
        elif self.closing:
            self.abort_writing()

    def close_writing(self) -> None:
        """End the outgoing stream once the write buffer is empty."""
        self.closing = True
        self.flush()

    def abort_writing(self) -> None:
        """Drop the write buffer and end the outgoing stream: the peer has stopped reading."""
        self.closed = True
        self.write_buffer.clear()
        self.transport.close_writing()

    def _finish_batch(self, batch: BatchResponse) -> None:
        if (line := batch.complete()) is not None:
            self.write((line,))


def _split_blocks(
    blocks: Iterable[bytes | OverlongLine],
) -> Iterator[NotificationBatch | bytes | OverlongLine]:
    for block in blocks:
        if type(block) is bytes:
            yield from split_block(block)
        else:
            yield block


def _too_deep() -> Malformed:
    return Malformed(INVALID_REQUEST, str(NestedTooDeeply()), "")


def _joined_line(pieces: Pieces) -> bytes:
    return b"".join(pieces)[:-1]
