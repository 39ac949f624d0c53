"""Where a value stands in a chain file: one stretch of one line, together with that line as it was
written, so that a problem can be shown long after the file was read. A value that spans several
lines has the place of its first one.
"""

from __future__ import annotations

import msgspec

__all__ = ["SourceLocation"]


class SourceLocation(msgspec.Struct, frozen=True):
    """A stretch of one line of a chain file.

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
        """The place of a file that has no lines to show, or of no file at all."""
        return cls(path, 0, 0, 0, "")
