"""Tables of text for terminals and pipes. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from conductor.cli.terminal_text import cell_width, cut_to_width

__all__ = ["table"]

_LEAST: Final = 20
"""Columns of a name that is cut."""


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
