"""A component's stderr: always drained, its end kept for error messages, its lines logged. Pure.

A component may write any amount there. What is logged is limited to so many bytes a second; what is
over is counted, not kept, so a gigabyte costs its reading and nothing else.
"""

from __future__ import annotations

import re
from collections import deque
from typing import Final

import attrs

__all__ = ["StderrTail", "TokenBucket"]

_TAIL_BYTES: Final = 64 * 1024
_ERROR_LINES: Final = 20
_LINE_LIMIT: Final = 4096
_LOG_RATE: Final = 64 * 1024
_REPORT_RATE: Final = 20
_MAX_LINES_PER_CHUNK: Final = 500
"""Lines of one chunk that are logged at most."""
_ANSI: Final = re.compile(rb"\x1b\[[0-?]*[ -/]*[@-~]|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)|\r")


@attrs.define(eq=False, repr=False)
class TokenBucket:
    """Lets a certain number of things happen in a second; what is over is counted."""

    rate: float = _REPORT_RATE
    skipped: int = attrs.field(default=0, init=False)
    _left: float = attrs.field(init=False)
    _refilled_at: float = attrs.field(default=0.0, init=False)

    def __attrs_post_init__(self) -> None:
        self._left = self.rate

    def take(self, now: float, amount: int = 1) -> bool:
        """Whether it may happen. `now` is in seconds."""
        self._left = min(self.rate, self._left + (now - self._refilled_at) * self.rate)
        self._refilled_at = now
        if self._left <= 0:
            self.skipped += amount
            return False
        self._left -= amount
        return True

    def report(self, now: float) -> dict[str, int] | None:
        """What a report of it says beside what happened: how many before were `skipped`, if any;
        None if there may be no report."""
        if not self.take(now):
            return None
        skipped = self.take_skipped()
        return {"skipped": skipped} if skipped else {}

    def take_skipped(self) -> int:
        skipped, self.skipped = self.skipped, 0
        return skipped


@attrs.define(eq=False, repr=False)
class StderrTail:
    """The last 64 KiB of a component's stderr, since it last succeeded in something."""

    _chunks: deque[bytes] = attrs.field(factory=deque, init=False)
    _size: int = attrs.field(default=0, init=False)
    _bytes_to_skip: int = attrs.field(default=0, init=False)
    """Bytes of what comes next that are not kept."""
    _partial: bytes = attrs.field(default=b"", init=False)
    _log_rate: TokenBucket = attrs.field(factory=lambda: TokenBucket(_LOG_RATE), init=False)

    def feed(self, chunk: bytes, now: float) -> list[str]:
        """Keep a chunk; returns the lines to log, if the rate allows. `now` is in seconds."""
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
        return [text for line in lines if (text := _readable(line))]

    def forget(self, upcoming: int = 0) -> None:
        """What was kept, and so many bytes of what comes next, are of something that went well."""
        self._chunks.clear()
        self._size = 0
        self._bytes_to_skip = upcoming

    def end(self) -> list[str]:
        """The last line, where it had no newline."""
        text = _readable(self._partial)
        self._partial = b""
        return [text] if text else []

    def take_skipped(self) -> int:
        """Bytes that were not given to the log, since this was last asked."""
        return self._log_rate.take_skipped()

    def last_lines(self) -> tuple[str, ...]:
        """What a person is shown of it in an error: the last lines, without terminal escapes."""
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
    text = _ANSI.sub(b"", line).decode(errors="backslashreplace").rstrip()
    return text if len(text) <= _LINE_LIMIT else text[:_LINE_LIMIT] + "… [cut]"
