"""Sequence numbers and acknowledgements between two conductors, to resume a cut connection. Pure.

Each direction numbers its texts from 1. The sender keeps a text until it is acknowledged; after a
cut, each end states the newest number that it received, and the other continues after it.
Duplicates are dropped. Frames, one WebSocket message each: `<number> <text>`, `ack <number>`. POSTs
of the HTTP transport, which may arrive in any order, have numbers too: `DuplicateFilter` finds
repeated ones.

A text is acknowledged when it is taken from the receive window, not when it arrives: the send
window (`WINDOW` bytes) bounds the memory at both ends during an outage, and acknowledgements never
wait behind texts that are not read.

Impossible numbers (a gap, an acknowledgement of an unsent text) mean that the peer has a different
state: `SequenceError`, the connection cannot be resumed.
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
"""Unacknowledged bytes at which a sender waits; the last text may exceed it."""
_ACK_FRAMES: Final = 100
_ACK_BYTES: Final = WINDOW // 8
_ACK_SECONDS: Final = 0.2
"""An acknowledgement is due after this many texts, bytes or seconds, the first of these, and
immediately for an empty text (EOF)."""
_MAX_DIGITS: Final = 18
_DUPLICATE_WINDOW: Final = 1000
"""Maximum distance of the numbers of POSTs in flight: an older number counts as a duplicate."""


class SequenceError(Exception):
    """The peer's sequence numbers contradict the local state."""


@attrs.frozen
class NumberedFrame:
    """A frame with a text."""

    number: int
    text: bytes

    def encode(self) -> str:
        return f"{self.number} {self.text.decode()}"


@attrs.frozen
class AckFrame:
    """A frame that acknowledges all texts up to `number`."""

    number: int

    def encode(self) -> str:
        return f"ack {self.number}"


def parse_frame(frame: str) -> NumberedFrame | AckFrame:
    """Parse a frame. Raises `SequenceError`."""
    word, space, rest = frame.partition(" ")
    digits, text = (rest, None) if word == "ack" else (word, rest)
    if not space or not digits.isascii() or not digits.isdecimal() or len(digits) > _MAX_DIGITS:
        raise SequenceError("expected a numbered message or an acknowledgement")
    if text is None:
        return AckFrame(int(digits))
    return NumberedFrame(int(digits), text.encode())


@attrs.define(eq=False)
class SendWindow:
    """Texts that are not acknowledged, whether sent already or not."""

    last: int = 0
    """Number of the newest text."""
    acknowledged: int = 0
    size: int = 0
    """Unacknowledged bytes."""
    _kept: deque[bytes] = attrs.field(factory=deque)

    @property
    def full(self) -> bool:
        return self.size >= WINDOW

    def put(self, text: bytes) -> int:
        """Append a text; return its number."""
        self._kept.append(text)
        self.size += len(text)
        self.last += 1
        return self.last

    def get(self, number: int) -> NumberedFrame:
        """An unacknowledged text by number."""
        return NumberedFrame(
            number, self._kept[number - self.last - 1]
        )  # indexing from the end: mostly the newest is needed

    def acknowledge(self, number: int) -> None:
        """Drop the texts up to this number. Raises `SequenceError`."""
        if not self.acknowledged <= number <= self.last:
            known = f"{self.acknowledged} to {self.last}"
            raise SequenceError(f"the peer acknowledged {number}, expected {known}")
        while self.acknowledged < number:
            self.size -= len(self._kept.popleft())
            self.acknowledged += 1


@attrs.define(eq=False)
class ReceiveWindow:
    """Received texts that are not taken yet. `taken`: number of the newest text taken."""

    taken: int = 0
    _waiting: deque[bytes] = attrs.field(factory=deque)
    _waiting_size: int = 0
    _acknowledged: int = 0
    _unacknowledged_bytes: int = 0
    ack_at: float = math.inf
    """Time at which an acknowledgement is due (trio clock)."""

    def put(self, frame: NumberedFrame) -> None:
        """Append a received text; a duplicate is dropped.

        Raises `SequenceError` for a gap, or if `WINDOW` bytes wait to be taken: none of them is
        acknowledged, so the peer has exceeded its send window.
        """
        expected = self.taken + len(self._waiting) + 1
        if frame.number < expected:
            return
        if frame.number > expected:
            raise SequenceError(f"the peer sent number {frame.number}, expected {expected}")
        if self._waiting_size >= WINDOW:
            raise SequenceError(
                f"the peer sent more than {WINDOW} bytes that were not acknowledged"
            )
        self._waiting.append(frame.text)
        self._waiting_size += len(frame.text)

    def take(self, now: float) -> bytes | None:
        """Take the next text, or `None`; it will be acknowledged."""
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
        """Return the acknowledgement that is due, and count it as sent; `None` if none is due."""
        if now < self.ack_at:
            return None
        self._acknowledged, self._unacknowledged_bytes, self.ack_at = self.taken, 0, math.inf
        return AckFrame(self.taken)


@attrs.define(eq=False)
class DuplicateFilter:
    """Detects repeated numbers, in any order within `_DUPLICATE_WINDOW`."""

    _taken: set[int] = attrs.field(factory=set, init=False)
    _highest: int = attrs.field(default=0, init=False)

    def is_new(self, number: int) -> bool:
        """Whether the number is seen for the first time. One below the window counts as seen."""
        if number in self._taken or number <= self._highest - _DUPLICATE_WINDOW:
            return False
        self._taken.add(number)
        self._highest = max(self._highest, number)
        if len(self._taken) > 2 * _DUPLICATE_WINDOW:
            oldest = self._highest - _DUPLICATE_WINDOW
            self._taken = {each for each in self._taken if each > oldest}
        return True
