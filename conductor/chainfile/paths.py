"""Paths in chain files: relative to the file's directory, `~` is a home directory.

Imports next to nothing: programs start before the rest of us is imported (`glance`).
"""

from __future__ import annotations

import os
from typing import Final

__all__ = ["START_DIRECTORY", "absolute", "from_start", "home_is_unknown"]


def _working_directory() -> str:
    try:
        return os.getcwd()
    except OSError:
        return os.sep  # it was removed before we were started


START_DIRECTORY: Final = _working_directory()
"""The working directory at start. It may be removed while the process runs (a deleted worktree);
`os.getcwd()` raises then, and `os.path.abspath` of a relative path too."""


def from_start(path: str) -> str:
    """The absolute, normalized path for one that a user gave when we were started."""
    return os.path.normpath(os.path.join(START_DIRECTORY, path))


def absolute(directory: str, path: str) -> str:
    """The absolute, normalized path for one written in a file of this directory."""
    return os.path.normpath(os.path.join(directory, os.path.expanduser(path)))


def home_is_unknown(path: str) -> bool:
    """Whether a path begins with a `~` that stands for no known home directory (`~nobody/x`)."""
    return path.startswith("~") and os.path.expanduser(path) == path
