"""Numbers on what two ends of ours tell each other, so that a cut connection can be resumed. Pure.

Each direction numbers its texts from 1. The sender keeps a text until its receiver has acknowledged
it; after a cut each end says how far it has received, and the other goes on behind that. What came
twice is dropped. On the wire, one message of a WebSocket each: `<number> <text>`, `ack <number>`.

A text is acknowledged when it was taken, not when it arrived: a sender that waits for room in its
`WINDOW` bounds what lies at both ends, however long the network is away, while acknowledgements
themselves never wait behind texts that nobody takes.

Numbers that cannot be (a gap, an acknowledgement of what was never sent) mean that the other end
is not the one that we knew: `SequenceError`, and nothing can be resumed.
"""

from __future__ import annotations

import math
from collections import deque
from typing import Final

import attrs

__all__ = [
    "WINDOW",
    "AckFrame",
    "DuplicateFilter",
    "NumberedFrame",
    "ReceiveWindow",
    "SendWindow",
    "SequenceError",
    "parse_frame",
]

WINDOW: Final = 1024 * 1024
"""Bytes that may be sent and not acknowledged before a sender waits; one text may go beyond it."""
_ACK_FRAMES: Final = 100
_ACK_BYTES: Final = WINDOW // 8
_ACK_SECONDS: Final = 0.2
"""An acknowledgement is sent after so many texts, or bytes, or seconds, whatever comes first, and
at once for an empty text, which is the last."""
_MAX_DIGITS: Final = 18
_DUPLICATE_WINDOW: Final = 1000
"""POSTs that may be under way at a time."""


class SequenceError(Exception):
    """The peer's numbers do not fit ours; the text is for people."""


@attrs.frozen
class NumberedFrame:
    """A frame that brings a text."""

    number: int
    text: bytes

    def encode(self) -> str:
        return f"{self.number} {self.text.decode()}"


@attrs.frozen
class AckFrame:
    """A frame that says that everything up to `number` was taken."""

    number: int

    def encode(self) -> str:
        return f"ack {self.number}"


def parse_frame(frame: str) -> NumberedFrame | AckFrame:
    """Raises `SequenceError` for what is neither."""
    word, space, rest = frame.partition(" ")
    digits, text = (rest, None) if word == "ack" else (word, rest)
    if not space or not digits.isascii() or not digits.isdecimal() or len(digits) > _MAX_DIGITS:
        raise SequenceError("expected a numbered message or an acknowledgement")
    if text is None:
        return AckFrame(int(digits))
    return NumberedFrame(int(digits), text.encode())


@attrs.define(eq=False)
class SendWindow:
    """What this end sends."""

    last: int = 0
    """The number of the newest text."""
    acknowledged: int = 0
    size: int = 0
    """Bytes that are not acknowledged."""
    _kept: deque[bytes] = attrs.field(factory=deque)

    @property
    def full(self) -> bool:
        return self.size >= WINDOW

    def put(self, text: bytes) -> int:
        """Keep a text until it is acknowledged; returns its number."""
        self._kept.append(text)
        self.size += len(text)
        self.last += 1
        return self.last

    def get(self, number: int) -> NumberedFrame:
        """A text that is kept."""
        return NumberedFrame(
            number, self._kept[number - self.last - 1]
        )  # the newest are asked for most

    def acknowledge(self, number: int) -> None:
        """The peer has everything up to this number."""
        if not self.acknowledged <= number <= self.last:
            known = f"{self.acknowledged} to {self.last}"
            raise SequenceError(f"the peer claims to have received {number}; possible are {known}")
        while self.acknowledged < number:
            self.size -= len(self._kept.popleft())
            self.acknowledged += 1


@attrs.define(eq=False)
class ReceiveWindow:
    """What this end receives. `taken` is the number of the newest text that was taken."""

    taken: int = 0
    _waiting: deque[bytes] = attrs.field(factory=deque)
    _waiting_size: int = 0
    _acknowledged: int = 0
    _unacknowledged_bytes: int = 0
    ack_at: float = math.inf
    """When an acknowledgement is due."""

    def put(self, frame: NumberedFrame) -> None:
        """A text has arrived; what had arrived before is dropped."""
        expected = self.taken + len(self._waiting) + 1
        if frame.number < expected:
            return
        if frame.number > expected:
            raise SequenceError(f"the peer sent {frame.number} where {expected} was due")
        if self._waiting_size >= WINDOW:
            raise SequenceError(
                f"the peer sent more than {WINDOW} bytes that were not acknowledged"
            )
        self._waiting.append(frame.text)
        self._waiting_size += len(frame.text)

    def take(self, now: float) -> bytes | None:
        """The next text; whoever takes it answers for it."""
        if not self._waiting:
            return None
        text = self._waiting.popleft()
        self._waiting_size -= len(text)
        self._unacknowledged_bytes += len(text)
        self.taken += 1
        many = self.taken - self._acknowledged >= _ACK_FRAMES
        at_once = many or self._unacknowledged_bytes >= _ACK_BYTES or not text
        self.ack_at = min(self.ack_at, now if at_once else now + _ACK_SECONDS)
        return text

    def acknowledgement(self, now: float) -> AckFrame | None:
        """The acknowledgement to be sent, if one is due."""
        if now < self.ack_at:
            return None
        self._acknowledged, self._unacknowledged_bytes, self.ack_at = self.taken, 0, math.inf
        return AckFrame(self.taken)


@attrs.define(eq=False)
class DuplicateFilter:
    """Numbers that may come several times, and in any order within `_DUPLICATE_WINDOW`."""

    _taken: set[int] = attrs.field(factory=set, init=False)
    _highest: int = attrs.field(default=0, init=False)

    def is_new(self, number: int) -> bool:
        """Whether it comes for the first time. What is older than the window has come."""
        if number in self._taken or number <= self._highest - _DUPLICATE_WINDOW:
            return False
        self._taken.add(number)
        self._highest = max(self._highest, number)
        if len(self._taken) > 2 * _DUPLICATE_WINDOW:
            oldest = self._highest - _DUPLICATE_WINDOW
            self._taken = {each for each in self._taken if each > oldest}
        return True
