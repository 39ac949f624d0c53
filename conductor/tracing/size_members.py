"""The pieces of a line between number and payload that depend on the payload's size, from tables.

A table gives a whole column of them in one step, 12 ns for a line.
"""

from __future__ import annotations

from collections.abc import Sequence
from operator import itemgetter
from typing import Final

__all__ = ["SessionPrefixes", "SizeMembers"]

_MAX_SIZE: Final = 4096
"""Length of a text up to which its member is kept."""
_MAX_LENGTHS: Final = 256
"""Entries of the table of a session before it is begun again."""


class SizeMembers:
    """The member of a size, and the name of the next, by the length of a text."""

    __slots__ = ("_end", "_next", "_table")

    def __init__(self, end: int = 0, next: bytes = b"params") -> None:
        self._end = end
        """Bytes of the text behind the payload."""
        self._next = next
        self._table: list[bytes] = []

    def of(self, lengths: list[int]) -> Sequence[bytes]:
        if len(lengths) == 1:
            return [self.member(lengths[0])]
        try:
            found: Sequence[bytes] = itemgetter(*lengths)(self._table)  # half of the time of `map`
        except IndexError:
            return list(map(self.member, lengths))
        return found

    def member(self, length: int) -> bytes:
        if length >= _MAX_SIZE:
            return self._make(length)
        while len(self._table) <= length:
            self._table.append(self._make(len(self._table)))
        return self._table[length]

    def _make(self, length: int) -> bytes:
        return b',"size":%d,"%b":' % (length - self._end, self._next)


class SessionPrefixes:
    """All pieces from the number to the session id in the params, or to the text of a message, as
    one: of the updates of one session on one hop, by the length of what comes behind."""

    __slots__ = ("_beginning", "_members", "_table")

    def __init__(self, members: bytes, beginning: bytes) -> None:
        """`members` are those of hop and session, `beginning` is that of the params up to the id
        or the text. The brace that ends the params is behind what comes behind."""
        self._members, self._beginning = members, beginning
        self._table: dict[int, bytes] = {}

    def of(self, lengths: list[int]) -> Sequence[bytes]:
        try:
            if len(lengths) == 1:
                return [self._table[lengths[0]]]
            found: Sequence[bytes] = itemgetter(*lengths)(self._table)
        except KeyError:
            self._add(lengths)
            return self.of(lengths)
        return found

    def size(self, length: int) -> int:
        """The size of the params."""
        return len(self._beginning) + length + 1

    def _add(self, lengths: list[int]) -> None:
        if len(self._table) > _MAX_LENGTHS:
            self._table.clear()
        for length in {*lengths} - self._table.keys():
            made = self._members, self.size(length), self._beginning
            self._table[length] = b'%b,"size":%d,"params":%b' % made
