"""Comparison of directories as the file system compares them.

A client, a chain file and an earlier session may spell one directory in several ways: through a
symbolic link, with a trailing slash, with `.` or `..`. What is shown stays as it was written. A
module of its own, since plugins, ready-made proxies and project files compare directories.
"""

from __future__ import annotations

import os
from typing import Final

__all__ = ["directory_spellings", "glob_spellings", "same_directory"]

_WILDCARDS: Final = frozenset("*?[")


def same_directory(one: str, other: str) -> bool:
    """Whether two paths name the same directory; it need not exist."""
    if _real(one) == _real(other):
        return True
    try:
        return os.path.samefile(one, other)  # where upper and lower case are the same, for example
    except (OSError, ValueError):
        return False


def directory_spellings(path: str) -> tuple[str, ...]:
    """A path normalized, and with symbolic links resolved if that is another one, which is last."""
    return tuple(dict.fromkeys((os.path.normpath(path), _real(path))))


def glob_spellings(glob: str) -> tuple[str, ...]:
    """A glob of absolute paths as written, and with the links before its first wildcard resolved,
    if that is another one."""
    parts = glob.split(os.sep)
    fixed = next((n for n, part in enumerate(parts) if _WILDCARDS & {*part}), len(parts))
    if not os.path.isabs(glob) or fixed < 2:
        return (glob,)
    head = _real(os.sep.join(parts[:fixed]))
    return tuple(dict.fromkeys((glob, os.path.join(head, *parts[fixed:]))))


def _real(path: str) -> str:
    """The path with links resolved; a relative one is relative to a directory that is unknown."""
    try:
        return os.path.realpath(path) if os.path.isabs(path) else os.path.normpath(path)
    except (OSError, ValueError):  # a null character
        return path
