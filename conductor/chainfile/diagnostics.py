"""Problems of a chain file and how they are shown: plain text, in the manner of rustc and elm.

    chain.yaml:3:5: error: unknown key `rnu`
       |   - rnu: [notes]
       |     ^^^
    help: did you mean `run`?

The line is shown as it was written, so that what `${VAR}` stands for is never seen.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable
from typing import Literal

import msgspec

from conductor.chainfile.source_location import SourceLocation

__all__ = ["Diagnostic", "closest_match", "in_file_order"]

_MAX_WIDTH = 120
_BEFORE_VALUE = 40


class Diagnostic(msgspec.Struct, frozen=True):
    """One mistake: what is wrong, where, what else belongs to it, and what to do about it."""

    location: SourceLocation
    message: str
    note: tuple[SourceLocation, str] | None = None
    help: str | None = None
    severity: Literal["error", "warning"] = "error"
    """A chain file with warnings only is used."""

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
    """The problems of one file, from its top to its bottom, each of them once."""
    locations = {
        problem: (problem.location.line, problem.location.column) for problem in diagnostics
    }
    return sorted(locations, key=locations.__getitem__)


def closest_match(word: str, known: Iterable[str]) -> str | None:
    """The one of `known` that `word` was probably meant to be, or None."""
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
    # A tab stays a tab under a tab: whatever its width, the caret is where the value is.
    indent = "".join("\t" if char == "\t" else " " * _width(char) for char in line[:start])
    caret = "^" * max(1, sum(map(_width, line[start:end])))
    return [f"   | {line}", f"   | {indent}{caret}"]


def _width(char: str) -> int:
    if unicodedata.combining(char):
        return 0
    return 2 if unicodedata.east_asian_width(char) in "WF" else 1


def _printable(line: str) -> str:
    """Without what would let a file write escape sequences to a terminal."""
    return "".join(
        char if char.isprintable() or char == "\t" else "\N{SYMBOL FOR SUBSTITUTE}" for char in line
    )
