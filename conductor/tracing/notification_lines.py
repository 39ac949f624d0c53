"""Lines of notifications of any method but `mcp/message`: updates are most of what passes a chain.

An agent's updates come in blocks of lines, which are encoded in one step. A line of the trace is
put together of pieces: what all of them begin with, the number, the members of hop and session, the
size, the payload. Each piece is a column over all lines, taken from tables and slices without a
step of Python for a line: 0.3 µs for one of 500 bytes, where one that came alone takes 1.5 µs.
"""

from __future__ import annotations

from collections.abc import Sequence
from io import BytesIO
from operator import itemgetter
from typing import Any, Final, TypeAlias

import attrs

from conductor.jsonrpc.notification_batch import PARAMS_START, SESSION_UPDATE, NotificationBatch
from conductor.routing.traced_port import Mark
from conductor.tracing.common_members import BEGINNING, LINE_END, CommonMembers, PortMembers
from conductor.tracing.line_block import LineBlock
from conductor.tracing.payload_text import HEAD, SESSION_FIRST, Payloads, payload_text, session_of
from conductor.tracing.record_numbers import RecordNumbers
from conductor.tracing.size_members import SizeMembers

__all__ = ["NotificationLines", "cause_member", "with_links"]

_Column: TypeAlias = Sequence[bytes]
_Cut: TypeAlias = tuple[list[_Column], bytes, tuple[bytes, ...]]
"""Columns, what ends each line behind them, and the bytes of them that are searched for secrets."""
_PARAMS_END: Final = b"}" + LINE_END
_SESSION_AT: Final = len(PARAMS_START + SESSION_FIRST)
_TEXT: Final = b'"text":'
_CHUNKS: Final = frozenset(
    b',"update":{"sessionUpdate":"%b_chunk","content":{"type":"text",' % kind
    for kind in (b"agent_message", b"agent_thought", b"user_message")
)
"""Bytes between session id and text: without a name that makes a secret of a text beside it."""
_MAX_KIND: Final = 100
_SHORT: Final = 1024
_MISSING: Final = (*[None] * 5, 0, None, None, None)
_MEMBERS: Final = len(_MISSING)
_cut: Final = itemgetter(slice(len(PARAMS_START), None))
_line_end: Final = itemgetter(slice(-len(_PARAMS_END), None))


@attrs.define(eq=False, repr=False)
class NotificationLines:
    """Encodes notifications; entries are tuples with the members of a `Passage`."""

    payloads: Payloads
    numbers: RecordNumbers
    members: CommonMembers

    def single(self, entry: tuple[Any, ...], block: LineBlock) -> None:
        """Add the line of a notification with whole params that came alone."""
        time, port, _, method, payload, _, _, mark, cause = with_links(entry)
        params = bytes(payload)
        at = self.members.at(port)
        try:
            common = at.by_method[method][params[:BEGINNING]]
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
            block.add_pieces([start, params, LINE_END], (params,))
        else:
            block.add(b"%b%b}\n" % (start, text))

    def batch(self, entry: tuple[Any, ...], block: LineBlock) -> None:
        """Add the lines of a batch."""
        time, port, _, method, batch, _, _, mark, cause = with_links(entry)
        at = self.members.at(port)
        lines = batch.lines
        cut = None if lines is None else self._cut_lines(at, lines)
        columns, end, searched = cut or (self._columns(at, method, batch), b"", None)
        count = len(columns[-1])
        # Each line begins with the end of the one before.
        start = b'%b{"type":"notification",%b,"n":' % (end, at.times.members(time))
        numbered = _numbered(start, self.numbers.take(mark, count), count)
        if cause is not None and cause.n is not None:
            numbered += _numbered(b',"cause":', cause.n, count)
        pieces = _pieces(count, *numbered, *columns)
        if end:
            pieces[0] = pieces[0][len(end) :]
            pieces.append(end)
        if searched is None:
            block.add(b"".join(pieces))
        else:
            block.add_pieces(pieces, searched)

    def _cut_lines(self, at: PortMembers, lines: bytes) -> _Cut | None:
        """Columns behind the numbers of lines that are as an agent usually writes them."""
        if ord("\r") in lines or self.payloads == "none":
            return None
        each = BytesIO(lines).readlines()
        session_end = lines.find(b'"', _SESSION_AT) + 1
        try:
            for beginning in _beginnings(lines, session_end):
                cut = self._of_one_session(at, beginning, lines, each)
                if cut is not None:
                    return cut
            if not _all_end_as_usual(lines, each):
                return None
            length = max(len(PARAMS_START) + BEGINNING, session_end)
            beginnings = map(itemgetter(slice(length)), each)
            members = list(map(at.texts_of_lines.__getitem__, beginnings))
        except KeyError:
            return None
        payloads = list(map(_cut, each))
        sizes = list(map(len, payloads))
        if self.payloads == "head" and max(sizes) > HEAD + len(LINE_END):
            return None
        return [members, _LINE_SIZES.of(sizes), payloads], b"", (lines,)

    def _of_one_session(
        self, at: PortMembers, beginning: bytes, lines: bytes, each: list[bytes]
    ) -> _Cut | None:
        """Columns of lines that all begin so, and end as usual: what they have in common is
        searched once. `None` if they do not: they are put together again, and compared.

        Only for short lines, which are copied twice for this: a search takes twice as long.
        """
        some = each[-1], each[len(each) // 2]
        if len(lines) >= _SHORT * len(each) or not all(one.startswith(beginning) for one in some):
            return None
        prefixes = at.prefixes[beginning]
        rests = list(map(itemgetter(slice(len(beginning), -len(_PARAMS_END))), each))
        between = _PARAMS_END + beginning
        if b"%b%b%b" % (beginning, between.join(rests), _PARAMS_END) != lines:
            return None
        lengths = list(map(len, rests))
        if self.payloads == "head" and prefixes.size(max(lengths)) > HEAD:
            return None
        return [prefixes.of(lengths), rests], _PARAMS_END, (beginning + b"\n".join(rests),)

    def _columns(self, at: PortMembers, method: str, batch: NotificationBatch) -> list[_Column]:
        """Members, sizes, and payloads with the ends of lines, in any form."""
        params = list(map(bytes, batch.params))
        return [
            [at.of(method, "acp", session_of(each)).text for each in params],
            _SIZES.of(list(map(len, params))),
            [payload_text(each, self.payloads) + LINE_END for each in params],
        ]


def _beginnings(line: bytes, session_end: int) -> list[bytes]:
    """A line up to the text, if it is a piece of a message, and up to the end of the session id."""
    text_at = line.find(_TEXT, session_end, session_end + _MAX_KIND)
    if text_at < 0 or line[session_end:text_at] not in _CHUNKS:
        return [line[:session_end]]
    return [line[: text_at + len(_TEXT)], line[:session_end]]


def _all_end_as_usual(lines: bytes, each: list[bytes]) -> bool:
    """One search takes half of the time of slices, and four times as long for lines of 4 KiB."""
    if len(lines) < _SHORT * len(each) and lines.startswith(PARAMS_START):
        usual = lines.count(_PARAMS_END + PARAMS_START) == len(each) - 1
        if usual and lines.endswith(_PARAMS_END):
            return True
    return list(map(_line_end, each)).count(_PARAMS_END) == len(each)


def with_links(entry: tuple[Any, ...]) -> tuple[Any, ...]:
    """An entry with call, detail, mark and cause, which may be missing at its end."""
    return entry if len(entry) == _MEMBERS else entry + _MISSING[len(entry) :]


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


_SIZES: Final = SizeMembers()
_LINE_SIZES: Final = SizeMembers(len(LINE_END))
_PADDED: Final = [b"%03d" % each for each in range(1000)]
_UNPADDED: Final = [b"%d" % each for each in range(1000)]
