"""Diagnostics of chain files, printed as plain text in the style of rustc and elm.

    chain.yaml:3:5: error: unknown key `rnu`
       |   - rnu: [notes]
       |     ^^^
    help: did you mean `run`?

The line is shown as written; the value of `${VAR}` never appears.
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
