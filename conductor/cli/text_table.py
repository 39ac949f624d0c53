"""Tables of text for terminals and pipes. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

__all__ = ["table"]


def table(head: Sequence[str], rows: Sequence[Sequence[str]], left: int = 1) -> Iterator[str]:
    """The lines of a table: the first `left` columns are left-aligned, the others right-aligned.

    A row may end early.
    """
    columns = len(head)
    filled = [[*row, *[""] * (columns - len(row))] for row in (head, *rows)]
    widths = [max(len(row[at]) for row in filled) for at in range(columns)]
    for row in filled:
        cells = [
            f"{cell:<{width}}" if at < left else f"{cell:>{width}}"
            for at, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        yield "  ".join(cells).rstrip()
