"""A component's stderr: drained always, its tail kept for error messages, its lines logged. Pure.

Logging is limited in bytes per second; the excess is counted, not kept.
"""

from __future__ import annotations

import re
from collections import deque
from typing import Final

import msgspec

from conductor.token_bucket import TokenBucket

__all__ = ["StderrTail"]

_TAIL_BYTES: Final = 64 * 1024
_ERROR_LINES: Final = 20
_LINE_LIMIT: Final = 4096
_LOG_RATE: Final = 64 * 1024
_MAX_LINES_PER_CHUNK: Final = 500
"""Maximum number of lines of one chunk that are logged."""
_LINE_COST: Final = 128
"""Bytes of the log for each line, besides its own."""
_ANSI: Final = rb"\x1b\[[0-?]*[ -/]*[@-~]|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)|\r"


class StderrTail(msgspec.Struct, eq=False):
    """The last 64 KiB of stderr since the component last answered with a result."""

    _chunks: deque[bytes] = msgspec.field(default_factory=deque)
    _size: int = 0
    _bytes_to_skip: int = 0
    """Number of the next bytes that are not kept."""
    _partial: bytes = b""
    _log_rate: TokenBucket = msgspec.field(default_factory=lambda: TokenBucket(_LOG_RATE))

    def feed(self, chunk: bytes, now: float) -> list[str]:
        """Add a chunk; returns the lines to log as the rate allows. `now` is in seconds."""
        self._keep(chunk)
        if not self._log_rate.take(now, len(chunk)):
            self._partial = b""
            return []
        *lines, rest = (self._partial + chunk).split(b"\n")
        if len(rest) > _LINE_LIMIT:
            lines.append(rest)
            rest = b""
        self._partial = rest
        if len(lines) > _MAX_LINES_PER_CHUNK:
            lines = [line for line in lines if not line.isspace()]
            self._log_rate.skipped += sum(map(len, lines[_MAX_LINES_PER_CHUNK:]))
            del lines[_MAX_LINES_PER_CHUNK:]
        self._log_rate.spend(_LINE_COST * len(lines))
        return [text for line in lines if (text := _readable(line))]

    def forget(self, upcoming: int = 0) -> None:
        """Drop the tail and the next `upcoming` bytes: they do not explain a later failure."""
        self._chunks.clear()
        self._size = 0
        self._bytes_to_skip = upcoming

    def end(self) -> list[str]:
        """The last line at EOF, if it has no newline."""
        text = _readable(self._partial)
        self._partial = b""
        return [text] if text else []

    def take_skipped(self) -> int:
        """Bytes not logged since the last call."""
        return self._log_rate.take_skipped()

    def last_lines(self) -> tuple[str, ...]:
        """The last 20 lines for error messages, without terminal escapes."""
        lines = [_readable(line) for line in b"".join(self._chunks).split(b"\n")]
        return tuple(line for line in lines if line)[-_ERROR_LINES:]

    def _keep(self, chunk: bytes) -> None:
        over = min(self._bytes_to_skip, len(chunk))
        self._bytes_to_skip -= over
        chunk = chunk[over:]
        if not chunk:
            return
        self._chunks.append(chunk)
        self._size += len(chunk)
        while self._size - len(self._chunks[0]) >= _TAIL_BYTES:
            self._size -= len(self._chunks.popleft())


def _readable(line: bytes) -> str:
    text = re.sub(_ANSI, b"", line).decode(errors="backslashreplace").expandtabs(4)
    if not text.isprintable():  # what is left of nested or unknown escapes
        text = "".join(char if char.isprintable() else " " for char in text)
    text = text.rstrip()
    return text if len(text) <= _LINE_LIMIT else text[:_LINE_LIMIT] + "… [cut]"
