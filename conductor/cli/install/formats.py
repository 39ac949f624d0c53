"""Launch command for an editor's configuration (absolute paths, arguments, PATH), and the interface
of the formats that write it."""

from __future__ import annotations

import os
import shlex
import shutil
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

import attrs

__all__ = [
    "ConfigFormat",
    "Edit",
    "FormatError",
    "Launch",
    "captured_path",
    "is_temporary",
    "own_program",
    "wrap_words",
]


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


def own_program() -> tuple[str, ...]:
    """The absolute command of this installation.

    `-P`: an editor starts it in a project, which may have a directory `conductor`.
    """
    beside = Path(sys.executable).parent / "acp-conductor"
    if beside.exists():
        return (str(beside),)
    found = shutil.which("acp-conductor")
    return (os.path.abspath(found),) if found else (sys.executable, "-P", "-m", "conductor")


def is_temporary(program: Sequence[str]) -> bool:
    """Whether the installation is in a cache, where `uvx` puts it, and not permanent."""
    return any(part in ("archive-v0", "environments-v2") for part in Path(program[0]).parts)


def wrap_words(chain: str | None, uses: Sequence[str]) -> list[str]:
    """The words of `wrap` up to `--`."""
    words = ["wrap"]
    if chain is not None:
        words += ["--chain", os.path.abspath(os.path.expanduser(chain))]
    for use in uses:
        words += ["--use", _absolute_use(use)]
    return [*words, "--"]


def captured_path(environ: Mapping[str, str]) -> str:
    """PATH of this shell: its absolute directories that exist, each once."""
    places = environ.get("PATH", "").split(os.pathsep)
    kept = dict.fromkeys(each for each in places if os.path.isabs(each) and os.path.isdir(each))
    return os.pathsep.join(kept)


def _absolute_use(use: str) -> str:
    file, separator, rest = use.partition(".py:")
    if not separator or ":{" in file:
        return use
    return os.path.abspath(os.path.expanduser(f"{file}.py")) + ":" + rest
