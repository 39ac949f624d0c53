"""`trace export --jsonl`: the chosen lines of a trace file, byte for byte."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, BinaryIO

if TYPE_CHECKING:
    from conductor.tracing.records import Record

__all__ = ["export"]


def export(path: str, lines: Iterator[tuple[bytes, Record]], out: BinaryIO) -> None:
    """Write the lines."""
    out.writelines(line for line, _ in lines)
