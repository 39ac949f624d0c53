"""One JSON-RPC peer: bytes in become requests, notifications and answers; answers find their call.

Everything here is synchronous: a chunk that was read is split, decoded and routed in one go, and
what it causes to be written is flushed once at its end (`pump`). Rules kept here: one answer per
id, batches answered as one array and never sent on, ids per connection, a malformed answer settles
the request that it names.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Final, Protocol

import attrs
from msgspec import UNSET

from conductor.connection.calls import BatchAnswer, Call
from conductor.connection.outbox import Outbox
from conductor.connection.runs import Run, cut
from conductor.errors import ConnectionClosed
from conductor.frames import (
    MAX_MEMBERS,
    Batch,
    Frame,
    Malformed,
    decode,
    oversized,
    without_ansi,
)
from conductor.limits import Limits
from conductor.messages import (
    INVALID_REQUEST,
    Id,
    Message,
    Payload,
    Pieces,
    encode_error,
    error_pieces,
    result_pieces,
)
from conductor.transport.base import Transport
from conductor.transport.lines import BlockSplitter, OverlongLine

__all__ = ["Connection", "Flusher", "Receiver"]

_ENDED: Final = object()
_INVALID: Final = encode_error(INVALID_REQUEST, "Invalid request")

_STEP: Final = 256
"""Single lines routed in one step: a few milliseconds, also if each is malformed."""
_MEMBER: Final = 4
"""What a member of a batch counts as in a step: to send one costs a few bytes, and others wait."""


def _nobody_waits() -> None:
    pass


class Receiver(Protocol):
    """What a connection calls with what its peer sent."""

    def on_request(self, call: Call, method: str, params: Payload | None) -> None: ...

    def on_run(self, run: Run) -> None:
        """Two or more consecutive notifications of one method."""

    def on_notification(self, method: str, params: Payload | None) -> None: ...

    def on_answer(self, call: Call, result: Payload | None, error: Payload | None) -> None: ...

    def on_malformed(self, frame: Malformed, call: Call | None) -> None:
        """Something that is no message; `call` is the request that it was meant to answer."""


class Flusher(Protocol):
    """Knows which connections have something to write."""

    def mark(self, connection: Connection) -> None: ...


@attrs.define(eq=False, repr=False)
class Connection:
    """The state of one peer.

    `answers_malformed`: a client is told what it did wrong, a component's noise is not answered.
    """

    transport: Transport
    receiver: Receiver
    flusher: Flusher
    answers_malformed: bool = False
    limits: Limits = attrs.field(factory=Limits)

    outbox: Outbox = attrs.field(factory=Outbox, init=False)
    sent: dict[Id, Call] = attrs.field(factory=dict, init=False)
    """Requests that the peer has not answered yet, by the ids that we gave them."""
    received: dict[Id, Call] = attrs.field(factory=dict, init=False)
    """Requests of the peer that we have not answered yet, by its ids; of equal ids the newest."""
    shadowed: dict[Call, None] = attrs.field(factory=dict, init=False)
    """The others: requests that we have not answered yet, whose id was used again."""
    dirty: bool = attrs.field(default=False, init=False)
    closed: bool = attrs.field(default=False, init=False)
    """Nothing can be written any more."""
    closing: bool = attrs.field(default=False, init=False)
    """Writing ends as soon as what waits is written."""
    on_blocked: Callable[[], object] = attrs.field(default=_nobody_waits, init=False)
    """Called when the peer did not take everything, or takes nothing any more."""
    noise: int = attrs.field(default=0, init=False)
    """Lines that were no message."""
    _splitter: BlockSplitter = attrs.field(init=False)
    _unrouted: Iterator[Run | bytes | OverlongLine] | None = attrs.field(default=None, init=False)
    _batch: Iterator[None] | None = attrs.field(default=None, init=False)
    """Routes one more member of the batch that was read last; it comes before what is unrouted."""
    _last_id: int = attrs.field(default=0, init=False)

    def __attrs_post_init__(self) -> None:
        self._splitter = BlockSplitter(self.limits.max_message_bytes)

    # -- what the peer sends ------------------------------------------------------------------

    def feed(self, chunk: bytes) -> None:
        """Route everything that this chunk completes: a run as one, everything else by itself."""
        more = self.feed_step(chunk)
        while more:
            more = self.route_step()

    def feed_step(self, chunk: bytes) -> bool:
        """The same, `_STEP` single lines or a part of a batch at most; true if `route_step` is to
        be called for more."""
        blocks = self._splitter.feed(chunk)
        if not blocks:
            return False
        block = blocks[0]
        if len(blocks) == 1 and type(block) is bytes and block.find(b"\n") == len(block) - 1:
            self._take(decode(block), block)
            return self._batch is not None and self.route_step()
        self._unrouted = _parts(blocks)
        return self.route_step()

    def route_step(self) -> bool:
        """Route more of the last chunk; true if there is still more."""
        left = self._route_batch(_STEP)
        if self._unrouted is None or not left:
            return not left
        for part in self._unrouted:
            if type(part) is Run:
                self.receiver.on_run(part)
                continue
            if type(part) is OverlongLine:
                self._take_overlong(part)
            elif type(frame := decode(part)) is Message:
                self._dispatch(frame)
            else:
                self._take(frame, part)
            left = self._route_batch(left - 1)
            if not left:
                return True
        self._unrouted = None
        return False

    def _route_batch(self, left: int) -> int:
        """Route `left` members of the batch, if there is one; how many more could be."""
        while self._batch is not None and left:
            if next(self._batch, _ENDED) is _ENDED:
                self._batch = None
            left = max(0, left - _MEMBER)
        return left

    def end(self) -> None:
        """The stream ended: route a last line that had no newline."""
        while self.route_step():
            pass
        line = self._splitter.end()
        if isinstance(line, OverlongLine):
            self._take_overlong(line)
        elif line is not None:
            self._take(decode(line), line)
        while self.route_step():
            pass

    def _take(self, frame: Frame, line: bytes) -> None:
        if type(frame) is Message:
            self._dispatch(frame)
        elif type(frame) is Batch:
            self._batch = self._take_batch(frame)
        elif not line.isspace():  # a blank line is no message, and not malformed either
            line = line.removesuffix(b"\n")
            stripped = line if self.answers_malformed else without_ansi(line)
            behind = decode(stripped)
            if isinstance(behind, Malformed):
                self._take_malformed(behind, stripped)
            else:
                self.noise += 1
                self._take(behind, stripped)

    def _dispatch(self, message: Message, batch: BatchAnswer | None = None, slot: int = 0) -> None:
        method, params = message.method, message.params
        if method is not UNSET:
            payload = None if params is UNSET else params
            if message.id is UNSET:
                self.receiver.on_notification(method, payload)
                return
            call = Call(method, self, message.id, batch, slot)
            if len(self.received) + len(self.shadowed) >= self.limits.max_open_requests:
                self._refuse(call, f"more than {self.limits.max_open_requests} open requests")
                return
            if message.id in self.received:
                self.shadowed[self.received[message.id]] = None
            self.received[message.id] = call
            self.receiver.on_request(call, method, payload)
            return
        call_or_none = self.sent.pop(message.id, None)  # type: ignore[arg-type]
        if call_or_none is None:
            reason = f"an answer to no request (id {message.id!r})"
            self.receiver.on_malformed(Malformed(INVALID_REQUEST, reason, ""), None)
            return
        result, error = message.result, message.error
        self.receiver.on_answer(
            call_or_none,
            None if result is UNSET else result,
            None if error is UNSET else error,
        )

    def _refuse(self, call: Call, reason: str) -> None:
        """A request that goes over a limit is answered, and goes no further."""
        self.receiver.on_malformed(Malformed(INVALID_REQUEST, reason, ""), None)
        self.respond(call, None, encode_error(INVALID_REQUEST, reason))

    def _take_batch(self, frame: Batch) -> Iterator[None]:
        """Route the members, one for each value of the iterator."""
        count = len(frame.raw)
        if count > min(self.limits.max_batch, MAX_MEMBERS):
            shown = f"over {MAX_MEMBERS}" if count > MAX_MEMBERS else str(count)
            reason = f"a batch of {shown} is over the limit of {self.limits.max_batch}"
            self._note_malformed(Malformed(INVALID_REQUEST, f"{reason} (max_batch)", ""))
            self.write(error_pieces(None, encode_error(INVALID_REQUEST, reason)))
            for answer in frame.answers(self.limits.max_batch):
                self._dispatch(answer)  # an answer opens nothing, and somebody waits for it
                yield
            return
        batch = BatchAnswer()
        for member in frame.members:
            if type(member) is Message:
                asked = member.method is not UNSET and member.id is not UNSET
                self._dispatch(member, batch, batch.reserve() if asked else 0)
            elif isinstance(member, Malformed):
                if self.answers_malformed and not member.response:
                    slot = batch.reserve()
                    batch.fill(slot, _line(error_pieces(None, _INVALID)))
                self._note_malformed(member)
            yield
        batch.sealed = True
        self._finish_batch(batch)

    def _take_overlong(self, line: OverlongLine) -> None:
        frame = oversized(line.head, line.tail, line.size, self.limits.max_message_bytes)
        if self.answers_malformed and not frame.response:
            id = None if frame.id is UNSET else frame.id
            self.write(error_pieces(id, encode_error(frame.code, frame.reason)))
        elif not frame.response and frame.id is not UNSET:
            # A component's request that is too large is answered, too: it waits for that.
            self.write(error_pieces(frame.id, encode_error(frame.code, frame.reason)))
        self._note_malformed(frame)

    def _take_malformed(self, frame: Malformed, line: bytes) -> None:
        if frame.deep and frame.id is not UNSET and not frame.response:
            # A proper request, as far as one can see: whoever sent it waits for the answer.
            error = encode_error(frame.code, f"Invalid request: {frame.reason}")
            self.write(error_pieces(frame.id, error))
        elif self.answers_malformed and not frame.response:
            if frame.code == INVALID_REQUEST:
                error = _INVALID
            else:
                text = line[:1000].decode(errors="backslashreplace")
                error = encode_error(frame.code, "Parse error", {"line": text})
            self.write(error_pieces(None, error))
        self._note_malformed(frame)

    def _note_malformed(self, frame: Malformed) -> None:
        """Count it, tell the receiver, and settle the request that a malformed answer names."""
        self.noise += 1
        settles = (frame.response or frame.bare) and frame.id is not UNSET
        call = self.sent.pop(frame.id, None) if settles else None  # type: ignore[arg-type]
        self.receiver.on_malformed(frame, call)

    def unanswered(self) -> list[Call]:
        """Every request of the peer that we have not answered yet."""
        return [*self.shadowed, *self.received.values()]

    # -- what is sent to the peer -------------------------------------------------------------

    def open(self, call: Call) -> int:
        """The id under which a call is to be sent on; its answer comes to the receiver."""
        self._last_id = id = self._last_id + 1
        call.target_id = id
        self.sent[id] = call
        return id

    def respond(self, call: Call, result: Payload | None, error: Payload | None) -> None:
        """Answer a request of the peer's; a second answer is ignored."""
        if call.answered:
            return
        call.answered = True
        if self.received.get(call.source_id) is call:
            del self.received[call.source_id]
        else:
            self.shadowed.pop(call, None)
        if result is not None:
            pieces = result_pieces(call.source_id, result)
        else:
            assert error is not None
            pieces = error_pieces(call.source_id, error)
        if call.batch is None:
            self.write(pieces)
        else:
            call.batch.fill(call.slot, _line(pieces))
            self._finish_batch(call.batch)

    def write(self, pieces: Pieces) -> None:
        if self.closed:
            return
        self.outbox.fresh += pieces
        if not self.dirty:
            self.dirty = True
            self.flusher.mark(self)

    def flush(self) -> bool:
        """Write what the peer takes now. True unless something is left, or was lost."""
        self.dirty = False
        if self.closed:
            return True
        try:
            empty = self.outbox.flush(self.transport.write_now)
        except ConnectionClosed:
            self.lose_writing()
            return False  # so that who waits to write looks, and sees that it is over
        if empty and self.closing:
            self.lose_writing()
        return empty

    def close_writing(self) -> None:
        """End the outgoing stream once everything is written."""
        self.closing = True
        self.flush()

    def lose_writing(self) -> None:
        """The peer takes nothing any more: drop what waits."""
        self.closed = True
        self.outbox.clear()
        self.transport.close_writing()

    def _finish_batch(self, batch: BatchAnswer) -> None:
        if (line := batch.complete()) is not None:
            self.write((line,))


def _parts(blocks: Iterable[bytes | OverlongLine]) -> Iterator[Run | bytes | OverlongLine]:
    for block in blocks:
        if type(block) is bytes:
            yield from cut(block)
        else:
            yield block


def _line(pieces: Pieces) -> bytes:
    return b"".join(pieces)[:-1]
