"""The text of a chain file, and the mapping from indexes into it to source locations."""

from __future__ import annotations

import re
from bisect import bisect_right

import msgspec

from conductor.chainfile.source_location import SourceLocation

__all__ = ["SourceText"]

# The line breaks of YAML 1.1, which the marks of PyYAML count too. One set of all characters would
# take twice as long to compile.
_LINE_BREAK = "\r\n?|[\n\x85]|[\u2028\u2029]"


class SourceText(msgspec.Struct, eq=False):
    """The text of one chain file with the index of its line breaks."""

    path: str
    text: str
    _starts: list[int] = []
    _ends: list[int] = []

    def __post_init__(self) -> None:
        breaks = list(re.finditer(_LINE_BREAK, self.text))
        self._starts = [0, *(found.end() for found in breaks)]
        self._ends = [*(found.start() for found in breaks), len(self.text)]

    def location(self, start: int, end: int) -> SourceLocation:
        """The location of `text[start:end]`, cut at the end of its first line."""
        line = bisect_right(self._starts, start) - 1
        first, last = self._starts[line], self._ends[line]
        return SourceLocation(
            path=self.path,
            line=line + 1,
            column=start - first + 1,
            end_column=max(min(end, last), start) - first + 1,
            source=self.text[first:last],
        )

    def end_of_line(self, index: int) -> int:
        """The index of the end of the line at `index`, before its line break."""
        return self._ends[bisect_right(self._starts, index) - 1]
