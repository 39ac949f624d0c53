"""`trace export --html`: the page of `trace view` with a trace in it, as one file."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

if TYPE_CHECKING:
    from conductor.tracing.records import Record

__all__ = ["export"]


def export(path: str, lines: Iterator[tuple[bytes, Record]], out: BinaryIO) -> None:
    """Write the page."""
    from conductor.viewer.page import exported_page

    out.writelines(exported_page(Path(path).name, lines))
