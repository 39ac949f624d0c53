"""Source location of a value in a chain file: a range of columns in one line.

It includes the line as written, so that diagnostics can be printed after the file was read. The
location of a value of several lines is in its first line.
"""

from __future__ import annotations

from typing import TypeAlias

import msgspec

__all__ = ["InterpolatedString", "SourceLocation", "ValuePath"]

ValuePath: TypeAlias = tuple[str | int, ...]
"""Keys and indexes that lead to a value: `("run", 0)`, `("with", "files", 1)`."""


class InterpolatedString(msgspec.Struct, frozen=True):
    """A string with `${VAR}` in it: `text` as written, and `values` of the variables `names`.

    Print only `text`: the expanded string may contain secrets.
    """

    text: str
    values: tuple[str, ...]
    names: tuple[str, ...]

    def __repr__(self) -> str:
        return f"InterpolatedString(text={self.text!r})"


class SourceLocation(msgspec.Struct, frozen=True):
    """A range of columns in one line of a chain file.

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
        """The location of a whole file, or of something that is in no file."""
        return cls(path, 0, 0, 0, "")
