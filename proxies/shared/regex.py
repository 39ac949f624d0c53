"""Regular expressions from chain files, matched in linear time.

Python's `re` backtracks: some patterns need minutes for 30 characters, and block the event loop
meanwhile. RE2 needs time linear in the text, for every pattern; it has no lookaround
and no back-references. A pattern has up to `MAX_PROGRAM` instructions.

Differences from `re`: `$` matches at the end of the text only (not before a last newline), `\\d`,
`\\w`, `\\s` and `\\b` are ASCII-only, `\\z` instead of `\\Z`.
https://github.com/google/re2/wiki/Syntax

Globs for names use `fnmatch`: since Python 3.9 its `*` does not backtrack, so its time is at most
the length of the name times that of the glob.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping
from typing import Any, Final

import attrs

__all__ = ["MAX_PROGRAM", "Pattern", "compile_pattern"]

_MAX_MEMORY: Final = 8 << 20
"""Bytes for one pattern's program and automaton."""
MAX_PROGRAM: Final = 10_000
"""Instructions of a compiled pattern: the time per character is at most proportional to it."""

_REMEDIES: Final[Mapping[str, str]] = {
    "(?=": "lookahead `(?=` is not supported: put the text into the pattern itself",
    "(?!": "negative lookahead `(?!` is not supported: use a second rule or pattern for what is"
    " excluded, before this one",
    "(?<=": "lookbehind `(?<=` is not supported: put the text into the pattern itself",
    "(?<!": "negative lookbehind `(?<!` is not supported: begin with `\\b`, `^` or `(?:^|[^…])`",
    "(?>": "the atomic group `(?>` is not supported: write `(?:`, matching never backtracks",
    "(?(": "the conditional group `(?(` is not supported: write both alternatives, `(?:…|…)`",
    "(?P=": "the back-reference `(?P=` is not supported: repeat the pattern of the group",
}
_ESCAPES: Final[Mapping[str, str]] = {
    "\\Z": "write `\\z` for the end of the text",
    "\\u": "write `\\x{…}` for a character by its number",
    "\\U": "write `\\x{…}` for a character by its number",
    "\\N": "write `\\x{…}` for a character by its number",
}
_TOO_LARGE: Final = "it is too large: shorten its counted repetitions, such as `{1000}`"
_SURROGATES: Final = re.compile("[\ud800-\udfff]")


@attrs.frozen
class Pattern:
    """A compiled pattern. A lone surrogate, which cannot be encoded, matches as U+FFFD."""

    _compiled: Any

    def search(self, text: str) -> bool:
        """Whether the pattern matches a part of the text."""
        return self._compiled.search(_encodable(text)) is not None

    def fullmatch(self, text: str) -> bool:
        """Whether the pattern matches the whole text."""
        return self._compiled.fullmatch(_encodable(text)) is not None


@functools.lru_cache(1000)
def compile_pattern(source: str, *, dot_all: bool = False) -> Pattern:
    """Compile a user's regular expression; with `dot_all`, `.` matches newlines too.

    Raises `ValueError` with the reason and what to write instead.
    """
    # Lazy: takes 5 ms, and only chains with patterns or globs need it.
    import re2

    options = re2.Options()
    options.max_mem, options.dot_nl, options.log_errors = _MAX_MEMORY, dot_all, False
    try:
        compiled = re2.compile(_encodable(source), options)
    except re2.error as exc:
        reason = exc.args[0] if exc.args else b""
        text = reason.decode(errors="replace") if isinstance(reason, bytes) else str(reason)
        raise ValueError(f"not a regular expression: {_explained(text, source)}") from None
    if compiled.programsize > MAX_PROGRAM:
        raise ValueError(f"not a regular expression: {_TOO_LARGE}")
    return Pattern(compiled)


def _encodable(text: str) -> str:
    return text if text.isascii() else _SURROGATES.sub("\ufffd", text)


def _explained(reason: str, source: str) -> str:
    """Explain RE2's error: the unsupported construct, and what to write instead."""
    what, _, where = reason.partition(": ")
    if "too large" in reason:
        return _TOO_LARGE
    if what == "invalid escape sequence" and where[1:2].isdigit() and where[1:2] != "0":
        return f"the back-reference `{where}` is not supported: repeat the pattern of the group"
    if what == "invalid escape sequence" and where in _ESCAPES:
        return f"`{where}` is not supported: {_ESCAPES[where]}"
    if what == "invalid repetition size":
        return f"the repetition `{where}` is too large: at most 1000 in all"
    if what == "bad repetition operator" and where.endswith("+"):
        return f"`{where}` is not supported: write `{where[:-1]}`, matching never backtracks"
    if what.startswith("invalid perl operator"):
        for operator, remedy in _REMEDIES.items():
            if where.startswith(operator) or (where == "(?P" and operator in source):
                return remedy
        return f"`{where}` is not supported"
    return reason
