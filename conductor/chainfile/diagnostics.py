"""Diagnostics of chain files, printed as plain text in the style of rustc and elm.

    chain.yaml:3:5: error: unknown key `rnu`
       |   - rnu: [notes]
       |     ^^^
    help: did you mean `run`?

A location includes the line as written, so that a diagnostic can be printed after the file was
read; the value of `${VAR}` never appears. The location of a value of several lines is in its first
line.
"""

from __future__ import annotations

import re
import unicodedata
from bisect import bisect_right
from collections.abc import Iterable
from typing import Literal, TypeAlias

import msgspec

__all__ = [
    "Diagnostic",
    "InterpolatedString",
    "SourceLocation",
    "SourceText",
    "ValuePath",
    "closest_match",
    "in_file_order",
]

_MAX_WIDTH = 120
_BEFORE_VALUE = 40
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


class Diagnostic(msgspec.Struct, frozen=True):
    """One error or warning: location, message, a second location (`note`) and a remedy (`help`)."""

    location: SourceLocation
    message: str
    note: tuple[SourceLocation, str] | None = None
    help: str | None = None
    severity: Literal["error", "warning"] = "error"
    """Warnings do not prevent a chain file from being used."""

    def __str__(self) -> str:
        lines = [f"{self.location}: {self.severity}: {self.message}", *_excerpt(self.location)]
        if self.note:
            location, text = self.note
            lines += [f"{location}: note: {text}", *_excerpt(location)]
        if self.help:
            first, *more = self.help.splitlines()
            lines += [f"help: {first}", *(f"      {line}" for line in more)]
        return "\n".join(_printable(line).rstrip() for line in lines)


def in_file_order(diagnostics: Iterable[Diagnostic]) -> list[Diagnostic]:
    """The diagnostics of one file, without duplicates, sorted by line and column."""
    locations = {
        problem: (problem.location.line, problem.location.column) for problem in diagnostics
    }
    return sorted(locations, key=locations.__getitem__)


def closest_match(word: str, known: Iterable[str]) -> str | None:
    """The element of `known` that `word` is probably a misspelling of, or None."""
    from difflib import get_close_matches

    by_form = {_normalized(name): name for name in known}
    found = get_close_matches(_normalized(word), by_form, n=1)
    return by_form[found[0]] if found else None


def _normalized(word: str) -> str:
    return word[:100].lower().replace("-", "_")


def _excerpt(location: SourceLocation) -> list[str]:
    if not location.line:
        return []
    line, start, end = location.source, location.column - 1, location.end_column - 1
    if len(line) > _MAX_WIDTH:
        first = max(0, start - _BEFORE_VALUE)
        head, tail = "…" if first else "", "…" if first + _MAX_WIDTH < len(line) else ""
        line = head + line[first : first + _MAX_WIDTH] + tail
        start, end = start - first + len(head), min(end - first, _MAX_WIDTH) + len(head)
    # Tabs are kept, so that the caret is below the value for every tab width.
    indent = "".join("\t" if char == "\t" else " " * _width(char) for char in line[:start])
    caret = "^" * max(1, sum(map(_width, line[start:end])))
    return [f"   | {line}", f"   | {indent}{caret}"]


def _width(char: str) -> int:
    if unicodedata.combining(char):
        return 0
    return 2 if unicodedata.east_asian_width(char) in "WF" else 1


def _printable(line: str) -> str:
    """The line without control characters, which could be terminal escape sequences."""
    return "".join(
        char if char.isprintable() or char == "\t" else "\N{SYMBOL FOR SUBSTITUTE}" for char in line
    )
