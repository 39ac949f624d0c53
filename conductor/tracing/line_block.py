"""Block of records written together: their lines in pieces, and the bytes searched for secrets.

The bytes of a line are copied once, when the block is joined. Most blocks have no secret; to find
that out, an update is searched as it came, without the members that the record adds to it, which
are masked already and are half of the line. If anything is found, all lines of the block are
searched, and masked. A payload that a component passes on unchanged is searched once for two hops.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise
from typing import Final

import attrs

from conductor.tracing.masking import Masker

__all__ = ["LineBlock"]

_SMALL: Final = 32 * 1024
"""Bytes up to which parts are joined for one search, which takes 1 µs to begin."""


@attrs.define(eq=False, repr=False)
class LineBlock:
    """Lines in the order in which they are added."""

    pieces: list[bytes] = attrs.field(factory=list, init=False)
    searched: list[bytes] = attrs.field(factory=list, init=False)
    """All of them that may have a secret."""

    def add(self, line: bytes) -> None:
        """Add a line, or several."""
        self.pieces.append(line)
        self.searched.append(line)

    def add_pieces(self, pieces: list[bytes], searched: Iterable[bytes]) -> None:
        """Add lines; `searched` is all of them that may have a secret. The list may be kept."""
        if self.pieces:
            self.pieces += pieces
        else:
            self.pieces = pieces
        self.searched += searched

    def masked(self, masker: Masker) -> bytes:
        """All lines, with their secrets masked."""
        lines = b"".join(self.pieces)
        return masker.mask_lines(lines) if self._has_secret(masker) else lines

    def _has_secret(self, masker: Masker) -> bool:
        new = [each for each, before in pairwise((*self.searched, b"")) if each != before]
        small = [each for each in new if len(each) <= _SMALL]
        large = [each for each in new if len(each) > _SMALL]
        return any(map(masker.spans, [b"\n".join(small), *large]))
