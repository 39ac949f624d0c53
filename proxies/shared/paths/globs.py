"""Path globs: `*` matches within a directory, `**` across directories."""

from __future__ import annotations

import functools
import os
import re

from conductor.files import is_below
from proxies.shared.regex import Pattern, compile_pattern, escape

__all__ = ["matches"]

_REGEX_BY_WILDCARD = {"**/": "(?:[^/]+/)*", "**": ".*", "*": "[^/]*", "?": "[^/]"}


def matches(path: str, glob: str, directory: str = "") -> bool:
    """Whether an absolute path matches; a relative glob is under `directory`, `~` is expanded.

    A glob that names a directory also matches everything below it; `.` is `directory` itself.
    Only the glob's own `*` and `?` are special, not those of `directory`.
    """
    base, pattern = _anchored(glob, directory)
    if not base.startswith("/"):
        return False  # relative, to an unknown directory
    if not is_below(path, base):
        return False
    return _pattern(pattern).fullmatch(path[len(base.rstrip("/")) :])


def _anchored(glob: str, directory: str) -> tuple[str, str]:
    """Return the base directory of a glob, and the glob below it, which begins with `/`."""
    home, _, rest = glob.partition("/")
    if home.startswith("~"):
        directory, glob = os.path.expanduser(home), rest
    elif glob.startswith("/"):
        directory = "/"
    directory, glob = os.path.normpath(directory), os.path.normpath(glob.lstrip("/"))
    while glob == ".." or glob.startswith("../"):
        directory, glob = os.path.dirname(directory), glob[3:] or "."
    return directory, "" if glob == "." else f"/{glob}"


@functools.lru_cache(1000)
def _pattern(glob: str) -> Pattern:
    pieces = re.split(r"(\*\*/|\*\*|\*|\?)", glob)
    body = "".join(_REGEX_BY_WILDCARD.get(piece, escape(piece)) for piece in pieces)
    return compile_pattern(body + "(?:/.*)?", dot_all=True)
