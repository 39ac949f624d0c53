"""Paths in chain files, relative to the directory of the file; names that are derived from them."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from itertools import chain, count
from pathlib import PurePath
from typing import Final

__all__ = [
    "absolute",
    "command_name",
    "files_read",
    "from_working_directory",
    "home_is_unknown",
    "untaken_name",
    "working_directory",
]

_LAUNCHER: Final = r"(python|pypy|node|bun|deno|ruby|npx|uvx|uv|npm)[0-9.]*"
_VERBS: Final = frozenset({"run", "exec", "x"})

files_read: set[str] = set()
"""The chain files that this process has read, also those that give it no component: no program in a
sandbox may change them."""
_last = os.sep


def working_directory() -> str:
    """The working directory or, after it was removed (a deleted worktree), its last known path.

    `os.getcwd()` and `os.path.abspath` of a relative path raise in that case.
    """
    global _last
    try:
        _last = os.getcwd()
    except OSError:
        return _last
    return _last


working_directory()  # record the initial one


def from_working_directory(path: str) -> str:
    """The absolute, normalized path for one that is relative to the working directory."""
    return os.path.normpath(os.path.join(working_directory(), path))


def absolute(directory: str, path: str) -> str:
    """The absolute, normalized path for one written in a file of this directory."""
    return os.path.normpath(os.path.join(directory, os.path.expanduser(path)))


def home_is_unknown(path: str) -> bool:
    """Whether a path begins with a `~` that stands for no known home directory (`~unknown/x`)."""
    return path.startswith("~") and os.path.expanduser(path) == path


def command_name(argv: Sequence[str]) -> str:
    """The program's file name or, for an interpreter or launcher, that of the script or package:
    `claude-agent-acp`; `python proxy.py` gives `proxy`, `npx -y @org/agent@1.2` gives `agent`."""
    program = PurePath(argv[0].rstrip("/")).name
    if not re.fullmatch(_LAUNCHER, program):
        return program
    words = iter(argv[1:])
    for word in words:
        if word == "-m":
            return next(words, program)
        if word == "-c":
            return program
        if word.startswith("-") or word in _VERBS:
            continue
        name = PurePath(word).name
        return name.removesuffix(".py").removesuffix(".js").partition("@")[0] or program
    return program


def untaken_name(name: str, taken: set[str]) -> str:
    """The name, which is added to those that are taken; a second `context` is `context-2`."""
    numbered = (f"{name}-{number}" for number in count(2))
    found = next(each for each in chain([name], numbered) if each not in taken)
    taken.add(found)
    return found
