"""Path globs as people write them: `*` within a directory, `**` across, relative to a directory."""

from __future__ import annotations

import functools
import os
import re

__all__ = ["matches"]

_WORDS = {"**/": "(?:[^/]+/)*", "**": ".*", "*": "[^/]*", "?": "[^/]"}


def matches(path: str, glob: str, directory: str = "") -> bool:
    """Whether an absolute path matches; a relative glob is under `directory`, `~` is expanded.

    A glob that names a directory also matches everything below it.
    """
    whole = os.path.join(directory, os.path.expanduser(glob))
    if not whole.startswith("/"):
        return False  # relative, to an unknown directory
    return _regex(whole.rstrip("/") or "/").fullmatch(path) is not None


@functools.lru_cache(1000)
def _regex(glob: str) -> re.Pattern[str]:
    pieces = re.split(r"(\*\*/|\*\*|\*|\?)", glob)
    body = "".join(_WORDS.get(piece, re.escape(piece)) for piece in pieces)
    return re.compile(body + "(?:/.*)?", re.DOTALL)
