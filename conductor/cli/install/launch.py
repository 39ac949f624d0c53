"""Command line with which an editor starts `acp-conductor`: absolute paths, arguments, PATH."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

__all__ = ["captured_path", "is_temporary", "own_program", "wrap_words"]


def own_program() -> tuple[str, ...]:
    """The absolute command of this installation.

    `-P`: an editor starts it in a project, which may have a directory `conductor`.
    """
    name = "acp-conductor.exe" if os.name == "nt" else "acp-conductor"
    beside = Path(sys.executable).parent / name
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
