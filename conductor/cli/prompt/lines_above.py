"""Replacement of stderr: a text file that passes each line to the display, which prints it above.

Lines of the log and of plugins would otherwise break the part of the screen that is redrawn.
"""

from __future__ import annotations

import io
from collections.abc import Callable

__all__ = ["LinesAbove"]


class LinesAbove(io.TextIOBase):
    """Calls `show` with each whole line. It has no file descriptor."""

    def __init__(self, show: Callable[[str], None]) -> None:
        self._show = show
        self._line = ""

    def write(self, text: str) -> int:
        *lines, self._line = (self._line + text).split("\n")
        for line in lines:
            self._show(line)
        return len(text)
