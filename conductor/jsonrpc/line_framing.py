"""Line framing: chunks of bytes in, whole lines out.

A line over the limit is dropped as it arrives and never takes more memory than the limit. It is
replaced by an `OverlongLine` with its two ends and its size, so that a request can be answered.
"""

from __future__ import annotations

from collections.abc import Sequence
from io import BytesIO
from typing import Final, final

import msgspec

__all__ = ["BlockSplitter", "LineSplitter", "OverlongLine"]

_KEPT_END: Final = 4096
_LONG_LINE: Final = 4 * 1024 * 1024
_MAX_PIECES: Final = 1024
_NEWLINE: Final = ord("\n")


@final
class OverlongLine(msgspec.Struct, frozen=True):
    """A line over the limit: its first and last bytes, and its size in bytes."""

    head: bytes
    tail: bytes
    size: int


class BlockSplitter(msgspec.Struct, eq=False, weakref=True):
    """Cuts a byte stream into blocks of whole lines. `limit` is the longest line, in bytes."""

    limit: int
    _pieces: list[bytes | bytearray] = msgspec.field(default_factory=list)
    """The beginning of an incomplete line. A long one is one piece, which malloc returns to the
    system; it may keep the memory of many small pieces."""
    _size: int = 0
    _overlong: OverlongLine | None = None

    def feed(self, chunk: bytes) -> list[bytes | OverlongLine]:
        """The blocks of whole lines that this chunk completes, in order, with newlines."""
        end = chunk.rfind(b"\n") + 1
        if not end:
            if chunk:
                self._keep(chunk)
            return []
        if self._size + len(chunk) > self.limit:
            return self._feed_line_by_line(chunk)
        if self._size:
            block = b"".join((*self._pieces, memoryview(chunk)[:end]))
            self._pieces.clear()
            self._size = 0
        else:
            block = chunk[:end]
        if end < len(chunk):
            self._keep(chunk[end:])
        return [block]

    def end(self) -> bytes | OverlongLine | None:
        """The last line, if the stream ended without a newline."""
        return self._finish(b"") if self._size else None

    def _feed_line_by_line(self, chunk: bytes) -> list[bytes | OverlongLine]:
        """Feed a chunk that may complete an overlong line."""
        blocks: list[bytes | OverlongLine] = []
        for line in BytesIO(chunk).readlines():
            if line[-1] != _NEWLINE:
                self._keep(line)
                continue
            whole = self._finish(line[:-1])
            blocks.append(whole if isinstance(whole, OverlongLine) else whole + b"\n")
        return blocks

    def _keep(self, piece: bytes) -> None:
        self._size += len(piece)
        if self._overlong is not None:
            head = (self._overlong.head + piece[:_KEPT_END])[:_KEPT_END]
            tail = (self._overlong.tail + piece)[-_KEPT_END:]
            self._overlong = OverlongLine(head, tail, self._size)
        elif self._size > self.limit:
            self._pieces.append(piece)
            head, tail = _ends(self._pieces)
            self._pieces.clear()
            self._overlong = OverlongLine(head, tail, self._size)
        elif self._size <= _LONG_LINE and len(self._pieces) < _MAX_PIECES:
            self._pieces.append(piece)
        else:
            first, *others = self._pieces or [b""]
            long = first if isinstance(first, bytearray) else bytearray(first)
            for each in (*others, piece):
                long += each
            self._pieces = [long]

    def _finish(self, last: bytes) -> bytes | OverlongLine:
        if last:
            self._keep(last)
        line = b"".join(self._pieces) if self._overlong is None else self._overlong
        self._pieces.clear()
        self._size = 0
        self._overlong = None
        return line


def _ends(pieces: Sequence[bytes | bytearray]) -> tuple[bytes, bytes]:
    """The first and the last bytes of the joined pieces, without joining all."""
    head, tail = bytearray(), bytearray()
    for piece in pieces:
        if len(head) >= _KEPT_END:
            break
        head += piece[: _KEPT_END - len(head)]
    for piece in reversed(pieces):
        if len(tail) >= _KEPT_END:
            break
        tail[:0] = piece[-(_KEPT_END - len(tail)) :]
    return bytes(head), bytes(tail)


class LineSplitter:
    """Splits a byte stream at newlines. `limit` is the longest line, in bytes."""

    def __init__(self, limit: int) -> None:
        self._blocks = BlockSplitter(limit)

    def feed(self, chunk: bytes) -> list[bytes | OverlongLine]:
        """The lines that this chunk completes, in order, without their newlines."""
        lines: list[bytes | OverlongLine] = []
        for block in self._blocks.feed(chunk):
            if isinstance(block, OverlongLine):
                lines.append(block)
            else:  # by memchr: four times as fast as bytes.split
                lines += [line[:-1] for line in BytesIO(block).readlines()]
        return lines

    def end(self) -> bytes | OverlongLine | None:
        """The last line, if the stream ended without a newline."""
        return self._blocks.end()
