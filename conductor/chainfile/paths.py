"""Paths in chain files: relative to the directory of the file; `~` is the home directory."""

from __future__ import annotations

import os

__all__ = [
    "absolute",
    "files_read",
    "from_working_directory",
    "home_is_unknown",
    "working_directory",
]

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
