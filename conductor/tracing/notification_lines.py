"""Lines of notifications, many in one step: updates are most of what passes a chain.

A line is put together of pieces: what all of them begin with, the number, the members of hop and
session, the size, the payload. Each piece is a column over all lines, taken from tables and slices
without a step of Python for a line: 0.4 µs for one of 500 bytes, where an operation of formatting
takes 3 µs. Two kinds have their columns at little cost:

- a block of lines as an agent wrote them, which are cut behind `"params":`;
- notifications that came one by one, each with its own time.
"""

from __future__ import annotations

from collections.abc import Sequence
from io import BytesIO
from operator import itemgetter
from typing import Any, Final, TypeAlias

import attrs

from conductor.jsonrpc.notification_batch import PARAMS_START, SESSION_UPDATE, NotificationBatch
from conductor.routing.traced_port import Mark, Passage, TracedPort
from conductor.tracing.common_members import CommonMembers, recorder_of
from conductor.tracing.line_block import LineBlock
from conductor.tracing.payload_text import HEAD, SESSION_FIRST, Payloads, payload_text, session_of
from conductor.tracing.record_numbers import RecordNumbers

__all__ = ["NotificationLines", "cause_member", "times"]

_Column: TypeAlias = Sequence[bytes]
_BEGINNING: Final = 54
"""Bytes of params that have the session id, if it comes first and is a UUID."""
_END: Final = b"}\n"
_LINE_END: Final = b"}" + _END
_SESSION_AT: Final = len(PARAMS_START + SESSION_FIRST)
_SHORT: Final = 1024
_beginning: Final = itemgetter(slice(_BEGINNING))
_cut: Final = itemgetter(slice(len(PARAMS_START), None))
_line_end: Final = itemgetter(slice(-len(_LINE_END), None))


@attrs.define(eq=False, repr=False)
class NotificationLines:
    """Encodes notifications of any method but `mcp/message`."""

    payloads: Payloads
    numbers: RecordNumbers
    members: CommonMembers

    def batch(self, passage: Passage, batch: NotificationBatch, block: LineBlock) -> None:
        """Add the lines of a batch."""
        port, method, lines = passage.port, passage.method, batch.lines
        cut = None if lines is None else self._cut_lines(port, lines)
        columns = cut or self._columns(port, method, list(map(bytes, batch.params)))
        count = len(columns[0])
        start = b'{"type":"notification",%b,"n":' % times(port, passage.time)
        first = self.numbers.take(passage.mark, count)
        numbered = _numbered(start, first, count)
        if passage.cause is not None and passage.cause.n is not None:
            numbered += _numbered(b',"cause":', passage.cause.n, count)
        pieces = _pieces(count, *numbered, *columns)
        if lines is None or cut is None:
            block.add(b"".join(pieces))
        else:
            block.add_pieces(pieces, [lines])

    def singles(self, entries: list[tuple[Any, ...]], block: LineBlock) -> None:
        """Add the lines of notifications of one port and method that came one by one: members of a
        `Passage` each."""
        port, method = entries[0][1], entries[0][3]
        params = [entry[4] for entry in entries]
        starts = [self._start(port, entry[0], *entry[7:]) for entry in entries]
        pieces = _pieces(len(params), starts, *self._columns(port, method, params))
        if method == SESSION_UPDATE and self.payloads == "full":
            block.add_pieces(pieces, params)
        else:
            block.add(b"".join(pieces))

    def _start(
        self, port: TracedPort, time: float, mark: Mark | None = None, cause: Mark | None = None
    ) -> bytes:
        n = self.numbers.take(mark)
        return b'{"type":"notification",%b,"n":%d%b' % (times(port, time), n, cause_member(cause))

    def _cut_lines(self, port: TracedPort, lines: bytes) -> list[_Column] | None:
        """Members, sizes and payloads of lines that are as an agent usually writes them."""
        if ord("\r") in lines or self.payloads == "none":
            return None
        each = BytesIO(lines).readlines()
        session_end = lines.find(b'"', _SESSION_AT) + 1
        try:
            if _all_begin(lines, len(each), lines[:session_end]):
                first = [lines[:session_end]]
                members = self.members.of_all(port, SESSION_UPDATE, first, PARAMS_START) * len(each)
            elif list(map(_line_end, each)).count(_LINE_END) < len(each):
                return None
            else:
                length = max(len(PARAMS_START) + _BEGINNING, session_end)
                beginnings = list(map(itemgetter(slice(length)), each))
                members = self.members.of_all(port, SESSION_UPDATE, beginnings, PARAMS_START)
        except KeyError:
            return None
        payloads = list(map(_cut, each))
        if self.payloads == "head" and max(map(len, payloads)) > HEAD + len(_END):
            return None
        return [members, _sizes(payloads, _LINE_SIZES), payloads]

    def _columns(self, port: TracedPort, method: str, params: list[bytes]) -> list[_Column]:
        """Members, sizes, payloads and ends."""
        try:
            members = self.members.of_all(port, method, list(map(_beginning, params)))
        except KeyError:
            sessions = map(session_of, params)
            members = [self.members.of(port, method, "acp", each) for each in sessions]
        payloads = [payload_text(each, self.payloads) for each in params]
        return [members, _sizes(params, _SIZES), payloads, [_END] * len(params)]


def _all_begin(lines: bytes, count: int, beginning: bytes) -> bool:
    """Whether all lines begin so, and end as usual. Only of short lines: one search takes half of
    the time of slices, and four times as long for lines of 4 KiB."""
    return (
        len(lines) < _SHORT * count
        and lines.endswith(_LINE_END)
        and lines.count(_LINE_END + beginning) == count - 1
    )


def times(port: TracedPort, time: float) -> bytes:
    """The time on both clocks."""
    recorder = recorder_of(port)
    since = time - recorder.started
    return b'"ts":%.6f,"time":%.6f' % (since, recorder.started_at + since)


def cause_member(cause: Mark | None) -> bytes:
    return b"" if cause is None or cause.n is None else b',"cause":%d' % cause.n


def _pieces(count: int, *columns: _Column) -> list[bytes]:
    """The columns line by line."""
    width = len(columns)
    pieces = [b""] * (width * count)
    for at, column in enumerate(columns):
        pieces[at::width] = column
    return pieces


def _numbered(start: bytes, first: int, count: int) -> list[_Column]:
    """Two columns: `start` with the thousands of consecutive numbers, and their last digits."""
    starts: list[bytes] = []
    digits: list[bytes] = []
    while len(digits) < count:
        thousands, rest = divmod(first + len(digits), 1000)
        table = _PADDED if thousands else _UNPADDED
        some = table[rest : rest + count - len(digits)]
        starts += [b"%b%d" % (start, thousands) if thousands else start] * len(some)
        digits += some
    return [starts, digits]


class _SizeMembers(dict[int, bytes]):
    """The member of a size, and the name of the next, by the length of a text."""

    def __init__(self, end: int) -> None:
        self._end = end
        """Bytes of the text behind the payload."""

    def __missing__(self, length: int) -> bytes:
        member = b',"size":%d,"params":' % (length - self._end)
        if len(self) < _MAX_SIZES:
            self[length] = member
        return member


def _sizes(payloads: list[bytes], table: _SizeMembers) -> list[bytes]:
    return list(map(table.__getitem__, map(len, payloads)))


_MAX_SIZES: Final = 4096
_SIZES: Final = _SizeMembers(0)
_LINE_SIZES: Final = _SizeMembers(len(_END))
_PADDED: Final = [b"%03d" % each for each in range(1000)]
_UNPADDED: Final = [b"%d" % each for each in range(1000)]
