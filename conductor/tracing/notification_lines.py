"""Lines of notifications of any method but `mcp/message`: updates are most of what passes a chain.

An agent's updates come in blocks of lines, which are encoded in one step. A line of the trace is
put together of pieces: what all of them begin with, the number, the members of hop and session, the
size, the payload. Each piece is a column over all lines, taken from tables and slices without a
step of Python for a line: 0.3 µs for one of 500 bytes, where one that came alone takes 1.5 µs.
"""

from __future__ import annotations

from collections.abc import Sequence
from io import BytesIO
from operator import attrgetter, itemgetter
from typing import Any, Final, TypeAlias

import attrs

from conductor.jsonrpc.notification_batch import PARAMS_START, SESSION_UPDATE, NotificationBatch
from conductor.routing.traced_port import Mark
from conductor.tracing.common_members import BEGINNING, CommonMembers, PortMembers
from conductor.tracing.line_block import LineBlock
from conductor.tracing.payload_text import HEAD, SESSION_FIRST, Payloads, payload_text, session_of
from conductor.tracing.record_numbers import RecordNumbers

__all__ = ["NotificationLines", "cause_member", "links"]

_Column: TypeAlias = Sequence[bytes]
_END: Final = b"}\n"
_LINE_END: Final = b"}" + _END
_SESSION_AT: Final = len(PARAMS_START + SESSION_FIRST)
_SHORT: Final = 1024
_cut: Final = itemgetter(slice(len(PARAMS_START), None))
_line_end: Final = itemgetter(slice(-len(_LINE_END), None))
_text: Final = attrgetter("text")


@attrs.define(eq=False, repr=False)
class NotificationLines:
    """Encodes notifications; entries are tuples with the members of a `Passage`."""

    payloads: Payloads
    numbers: RecordNumbers
    members: CommonMembers

    def single(self, entry: tuple[Any, ...], block: LineBlock) -> None:
        """Add the line of a notification with whole params that came alone."""
        time, port, _, method, payload = entry[:5]
        params = bytes(payload)
        mark, cause = links(entry)
        at = self.members.at(port)
        try:
            common = at.by_beginning(method)[params[:BEGINNING]]
        except KeyError:
            common = at.of(method, "acp", session_of(params))
        start = b'{"type":"notification",%b,"n":%d%b%b%b' % (
            at.times.members(time),
            self.numbers.take(mark),
            b"" if cause is None else cause_member(cause),
            common.text,
            _SIZES.member(len(params)),
        )
        text = payload_text(params, self.payloads)
        if method == SESSION_UPDATE and text is params:
            block.add_pieces((start, params, _END), (params,))
        else:
            block.add(b"%b%b}\n" % (start, text))

    def batch(self, entry: tuple[Any, ...], block: LineBlock) -> None:
        """Add the lines of a batch."""
        time, port, _, method, batch = entry[:5]
        mark, cause = links(entry)
        at = self.members.at(port)
        lines = batch.lines
        cut = None if lines is None else self._cut_lines(at, lines)
        columns = cut or self._columns(at, method, batch)
        count = len(columns[-1])
        start = b'{"type":"notification",%b,"n":' % at.times.members(time)
        numbered = _numbered(start, self.numbers.take(mark, count), count)
        if cause is not None and cause.n is not None:
            numbered += _numbered(b',"cause":', cause.n, count)
        pieces = _pieces(count, *numbered, *columns)
        if cut is None or lines is None:
            block.add(b"".join(pieces))
        else:
            block.add_pieces(pieces, (lines,))

    def _cut_lines(self, at: PortMembers, lines: bytes) -> list[_Column] | None:
        """Members, sizes and payloads of lines that are as an agent usually writes them."""
        if ord("\r") in lines or self.payloads == "none":
            return None
        each = BytesIO(lines).readlines()
        session_end = lines.find(b'"', _SESSION_AT) + 1
        members: _Column
        try:
            if _all_begin(lines, len(each), lines[:session_end]):
                members = [at.of_lines[lines[:session_end]].text] * len(each)
            elif list(map(_line_end, each)).count(_LINE_END) < len(each):
                return None
            else:
                length = max(len(PARAMS_START) + BEGINNING, session_end)
                beginnings = map(itemgetter(slice(length)), each)
                members = list(map(_text, map(at.of_lines.__getitem__, beginnings)))
        except KeyError:
            return None
        payloads = list(map(_cut, each))
        sizes = list(map(len, payloads))
        if self.payloads == "head" and max(sizes) > HEAD + len(_END):
            return None
        return [members, _LINE_SIZES.of(sizes), payloads]

    def _columns(self, at: PortMembers, method: str, batch: NotificationBatch) -> list[_Column]:
        """Members, sizes, and payloads with the ends of lines, in any form."""
        params = list(map(bytes, batch.params))
        return [
            [at.of(method, "acp", session_of(each)).text for each in params],
            _SIZES.of(list(map(len, params))),
            [payload_text(each, self.payloads) + _END for each in params],
        ]


def _all_begin(lines: bytes, count: int, beginning: bytes) -> bool:
    """Whether all lines begin so, and end as usual. Only of short lines: one search takes half of
    the time of slices, and four times as long for lines of 4 KiB."""
    return (
        len(lines) < _SHORT * count
        and lines.endswith(_LINE_END)
        and lines.count(_LINE_END + beginning) == count - 1
    )


def links(entry: tuple[Any, ...]) -> tuple[Mark | None, Mark | None]:
    """Mark and cause of an entry, if it has them."""
    return (entry[7], entry[8]) if len(entry) > 7 else (None, None)


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


class _SizeMembers:
    """The member of a size, and the name of the next, by the length of a text."""

    def __init__(self, end: int) -> None:
        self._end = end
        """Bytes of the text behind the payload."""
        self._table: list[bytes] = []

    def of(self, lengths: list[int]) -> _Column:
        if len(lengths) == 1:
            return [self.member(lengths[0])]
        try:
            found: _Column = itemgetter(*lengths)(self._table)  # half of the time of `map`
        except IndexError:
            return list(map(self.member, lengths))
        return found

    def member(self, length: int) -> bytes:
        if length >= _MAX_SIZES:
            return self._make(length)
        while len(self._table) <= length:
            self._table.append(self._make(len(self._table)))
        return self._table[length]

    def _make(self, length: int) -> bytes:
        return b',"size":%d,"params":' % (length - self._end)


_MAX_SIZES: Final = 4096
_SIZES: Final = _SizeMembers(0)
_LINE_SIZES: Final = _SizeMembers(len(_END))
_PADDED: Final = [b"%03d" % each for each in range(1000)]
_UNPADDED: Final = [b"%d" % each for each in range(1000)]
