"""Launch command for an editor's configuration, and the interface of the formats that write it."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import attrs

__all__ = ["ConfigFormat", "Edit", "FormatError", "Launch"]


class FormatError(Exception):
    """The configuration cannot take the entry; the text is for the user.

    `index` is the place in the text, if there is one.
    """

    def __init__(self, message: str, index: int | None = None, help: str | None = None) -> None:
        super().__init__(message)
        self.index = index
        self.help = help


@attrs.frozen
class Launch:
    """Command with which an editor starts `acp-conductor`: `program`, then `words`.

    `wrapped` is the name of an agent that the editor already has: its command is appended.
    """

    name: str
    program: tuple[str, ...]
    words: tuple[str, ...]
    env: Mapping[str, str] = {}
    wrapped: str | None = None

    @property
    def argv(self) -> list[str]:
        return [*self.program, *self.words]

    @property
    def line(self) -> str:
        """The command as one line, quoted for a shell."""
        return shlex.join(self.argv)


@attrs.frozen
class Edit:
    """One change of a JSON file: the value set at a path of keys, and what it replaced."""

    path: tuple[str, ...]
    value: Any
    before: str | None = None
    """The text of the value before; `None` if there was none."""
    existing: int = 0
    """Number of leading keys of the path that existed before."""


class ConfigFormat(Protocol):
    """Text in, text out; no file is touched. All methods raise `FormatError`."""

    def install(self, text: str, launch: Launch) -> tuple[str, Sequence[Edit]]:
        """The text with the entry, and what has been changed."""

    def uninstall(self, text: str, name: str, edits: Sequence[Edit]) -> str | None:
        """The text without the entry; `None` if the file has nothing else."""

    def snippet(self, text: str, launch: Launch) -> str:
        """The text to insert by hand; `text` is the current content of the file."""
