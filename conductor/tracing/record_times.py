"""The times of records, as JSON.

The clocks of a recorder have the same digits below a millisecond, so the text of a millisecond
serves for all its records: 0.3 µs, where formatting two floats takes 1 µs.
"""

from __future__ import annotations

from typing import Final

__all__ = ["RecordTimes", "elapsed"]

_THREE_DIGITS: Final = tuple(b"%03d" % each for each in range(1000))


class RecordTimes:
    """Formats the times of one recorder."""

    __slots__ = ("_at", "_members", "_millisecond", "_started", "_text", "_time")

    def __init__(self, started: float, started_at: float) -> None:
        """The same moment on the monotonic clock, and in seconds since 1970: whole milliseconds."""
        self._started = started
        self._at = round(started_at * 1000)
        self._millisecond = -1
        self._text = b""
        self._time = -1.0
        self._members = b""
        """The members for `_time`: messages of one wake-up have one time."""

    def members(self, time: float) -> bytes:
        """The members `ts` and `time` of a moment on the monotonic clock."""
        if time == self._time:
            return self._members
        since = time - self._started
        millisecond, rest = divmod(int(since * 1e6 + 0.5), 1000)
        if millisecond != self._millisecond:
            if millisecond < 0:
                return b'"ts":%.6f,"time":%.6f' % (since, self._at / 1000 + since)
            self._begin(millisecond)
        digits = _THREE_DIGITS[rest]
        self._time = time
        self._members = members = self._text % (digits, digits)
        return members

    def _begin(self, millisecond: int) -> None:
        self._millisecond = millisecond
        at = self._at + millisecond
        self._text = b'"ts":%d.%03d%%b,"time":%d.%03d%%b' % (
            *divmod(millisecond, 1000),
            *divmod(at, 1000),
        )


def elapsed(seconds: float) -> tuple[bytes, ...]:
    """Seconds as JSON, in pieces."""
    milliseconds, rest = divmod(int(seconds * 1e6 + 0.5), 1000)
    if 0 <= milliseconds < 1000:
        return b"0.", _THREE_DIGITS[milliseconds], _THREE_DIGITS[rest]
    return (b"%.6f" % seconds,)
