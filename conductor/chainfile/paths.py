"""Paths in chain files: relative to the file's directory, `~` is a home directory.

Imports next to nothing: programs start before the rest of us is imported (`glance`).
"""

from __future__ import annotations

import os

__all__ = ["absolute", "home_is_unknown"]


def absolute(directory: str, path: str) -> str:
    """The absolute, normalized path for one written in a file of this directory."""
    return os.path.normpath(os.path.join(directory, os.path.expanduser(path)))


def home_is_unknown(path: str) -> bool:
    """Whether a path begins with a `~` that stands for no known home directory (`~nobody/x`)."""
    return path.startswith("~") and os.path.expanduser(path) == path
