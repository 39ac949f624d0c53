"""Source location of a value in a chain file, a range of columns in one line; the text of the file.

It includes the line as written, so that diagnostics can be printed after the file was read. The
location of a value of several lines is in its first line.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from typing import TypeAlias

import msgspec

__all__ = ["InterpolatedString", "SourceLocation", "SourceText", "ValuePath"]

# The line breaks of YAML 1.1, which the marks of PyYAML count too. One set of all characters would
# take twice as long to compile.
_LINE_BREAK = "\r\n?|[\n\x85]|[\u2028\u2029]"

ValuePath: TypeAlias = tuple[str | int, ...]
"""Keys and indexes that lead to a value: `("run", 0)`, `("with", "files", 1)`."""


class InterpolatedString(msgspec.Struct, frozen=True):
    """A string with `${VAR}` in it: `text` as written, and `values` of the variables `names`.

    Print only `text`: the expanded string may contain secrets.
    """

    text: str
    values: tuple[str, ...]
    names: tuple[str, ...]

    def __repr__(self) -> str:
        return f"InterpolatedString(text={self.text!r})"


class SourceLocation(msgspec.Struct, frozen=True):
    """A range of columns in one line of a chain file.

    `path` is the file as the user named it, or `<command line>`. `line` and `column` count from 1,
    in characters; `end_column` is the first column behind the value. `line` 0 stands for the file
    as a whole. `source` is the line as written: `${VAR}` is not expanded in it.
    """

    path: str
    line: int
    column: int
    end_column: int
    source: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}:{self.column}" if self.line else self.path

    @classmethod
    def whole(cls, path: str) -> SourceLocation:
        """The location of a whole file, or of something that is in no file."""
        return cls(path, 0, 0, 0, "")


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
