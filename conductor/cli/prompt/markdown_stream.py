"""Splits streamed Markdown into whole blocks, so that each is rendered and printed once. Pure.

A block ends at a blank line outside of a code fence, if the next line is not indented (which would
continue a list item).
"""

from __future__ import annotations

import re
from typing import Final

import attrs

__all__ = ["MarkdownStream"]

_MAX_BLOCK: Final = 64 * 1024
"""Characters after which a block is split anywhere."""
_fence: Final = re.compile(r" {0,3}(`{3,}|~{3,})")


@attrs.define(eq=False)
class MarkdownStream:
    """The text of one message."""

    _lines: list[str] = attrs.field(factory=list, init=False)
    """Whole lines of the unfinished block."""
    _line: str = attrs.field(default="", init=False)
    _fence: str = attrs.field(default="", init=False)
    """The fence that is open."""
    _after_blank: bool = attrs.field(default=False, init=False)
    _size: int = attrs.field(default=0, init=False)

    @property
    def tail(self) -> str:
        """The unfinished block."""
        return "".join(self._lines) + self._line

    def feed(self, text: str) -> list[str]:
        """Add text; return the blocks that it has finished."""
        finished = []
        for line in text.splitlines(keepends=True):
            if not self._line and self._begins_block(line):
                finished.append(self._take())
            self._line += line
            self._size += len(line)
            if self._line.endswith("\n"):
                self._end_line()
            if self._size > _MAX_BLOCK:
                self._lines.append(self._line)
                self._line = ""
                finished.append(self._take())
        return finished

    def _begins_block(self, line: str) -> bool:
        return self._after_blank and not line[0].isspace()

    def _end_line(self) -> None:
        found = _fence.match(self._line)
        if found and not self._fence:
            self._fence = found[1]
        elif found and found[1].startswith(self._fence) and not self._line[found.end() :].strip():
            self._fence = ""
        self._after_blank = not self._line.strip() and not self._fence
        self._lines.append(self._line)
        self._line = ""

    def _take(self) -> str:
        block = "".join(self._lines)
        self._lines, self._size, self._after_blank = [], 0, False
        return block
