"""Text for a terminal: in colours, in tables, with short paths, without control characters."""

from __future__ import annotations

import os
import sys
import unicodedata
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final, Literal, TypeAlias

__all__ = [
    "Style",
    "cell_width",
    "cut_to_width",
    "is_coloured",
    "printable",
    "printable_lines",
    "shown_path",
    "styled",
    "table",
]

Style: TypeAlias = Literal[
    "message", "function", "note", "-", "+", "error", "warning", "response", "text"
]
_PACKAGES: Final = f"{Path(__file__).parents[2]}{os.sep}"
"""The directory of the installed packages."""
_LEAST: Final = 20
"""Columns of a name in a table that is cut."""
_COLOURS: Final = {
    "message": "1",
    "function": "36",
    "note": "2",
    "-": "31",
    "+": "32",
    "error": "31",
    "warning": "33",
    "response": "34",
}


def is_coloured() -> bool:
    """Whether stdout shows colours: a terminal, and neither NO_COLOR nor TERM=dumb is set."""
    plain = os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb"
    return sys.stdout.isatty() and not plain


def printable(text: str) -> str:
    """The text with unprintable characters replaced by spaces: one line, without escapes."""
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else " " for char in text)


def printable_lines(text: str) -> str:
    """Text of several lines, each without unprintable characters."""
    return "\n".join(map(printable, text.split("\n")))


def cell_width(text: str) -> int:
    """Columns of a terminal that a text takes: wide characters take two, combining ones none."""
    if text.isascii():
        return len(text)
    return sum(map(_cells, text))


def cut_to_width(text: str, width: int) -> str:
    """The text if it fits in `width` columns, else its beginning and `…`."""
    if len(text) <= width and cell_width(text) <= width:
        return text
    cells = 1
    for at, char in enumerate(text):
        cells += _cells(char)
        if cells > width:
            return text[:at] + "…"
    return text


def _cells(char: str) -> int:
    if unicodedata.east_asian_width(char) in "WF":
        return 2
    return 0 if unicodedata.category(char) in ("Mn", "Me") else 1


def styled(text: str, style: Style) -> str:
    """The text with the escape sequences of a style; as it is in the style "text"."""
    colour = _COLOURS.get(style)
    return f"\x1b[{colour}m{text}\x1b[0m" if colour else text


def shown_path(file: str) -> str:
    """The path of a file, or the shorter one relative to the current directory or to that of the
    installed packages."""
    if not file:
        return ""
    installed = file.removeprefix(_PACKAGES) if file.startswith(_PACKAGES) else file
    return min(file, os.path.relpath(file), installed, key=len)


def table(
    head: Sequence[str], rows: Sequence[Sequence[str]], left: int = 1, width: int | None = None
) -> Iterator[str]:
    """The lines of a table: the first `left` columns are left-aligned, the others right-aligned.

    A row may end early. In a table that is wider than `width`, names in the first column are cut
    in the middle.
    """
    columns = len(head)
    filled = [[*row, *[""] * (columns - len(row))] for row in (head, *rows)]
    widths = [max(cell_width(row[at]) for row in filled) for at in range(columns)]
    if width is not None:
        widths[0] = min(widths[0], max(width - sum(widths[1:]) - 2 * (columns - 1), _LEAST))
    for row in filled:
        row[0] = _shortened(row[0], widths[0])
        padding = [
            " " * (width - cell_width(cell)) for cell, width in zip(row, widths, strict=True)
        ]
        cells = [
            cell + space if at < left else space + cell
            for at, (cell, space) in enumerate(zip(row, padding, strict=True))
        ]
        yield "  ".join(cells).rstrip()


def _shortened(name: str, width: int) -> str:
    """The name, or its beginning and the longer part of its end."""
    if cell_width(name) <= width:
        return name
    start = cut_to_width(name, width // 3 + 1)
    end = cut_to_width(name[::-1], width - cell_width(start) + 1)[-2::-1]
    return start + end
