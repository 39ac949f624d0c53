"""Secrets that are recognized by their form, in bytes of JSON: known key formats, private keys,
passwords in URLs, `Authorization` values. Pure.

A form is a literal that is searched for, and a pattern for what must be there. Patterns do not
match quotes and lone backslashes, so that masked JSON stays valid. A literal is not looked at again
where an earlier one has decided: `sk-sk-sk-…` would take time with the square of its length.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Final, TypeAlias

__all__ = ["FORMATS", "Found", "Span", "format_spans"]

Span: TypeAlias = tuple[int, int]
"""Start and end of a secret."""
Found: TypeAlias = tuple[Sequence[Span], int]
"""Secrets, and the place before which the same literal finds no other."""

_KEYS: Final[Mapping[bytes, bytes]] = {
    b"sk-": rb"sk-(?=[\w-]*\d)[\w-]{16,}",
    b"sk_": rb"sk_(?:live|test)_\w{10,}",
    b"rk_": rb"rk_(?:live|test)_\w{10,}",
    **{b"gh%b_" % kind: rb"gh._[A-Za-z0-9]{16,}" for kind in (b"p", b"o", b"u", b"s", b"r")},
    b"github_pat_": rb"github_pat_\w{20,}",
    b"glpat-": rb"glpat-[\w-]{10,}",
    b"xox": rb"xox[a-z]-[\w-]{8,}",
    b"xapp-": rb"xapp-[\w-]{8,}",
    b"AKIA": rb"AKIA[0-9A-Z]{12,}",
    b"ASIA": rb"ASIA[0-9A-Z]{12,}",
    b"AIza": rb"AIza[\w-]{20,}",
    b"ya29.": rb"ya29\.[\w-]{16,}",
    b"GOCSPX-": rb"GOCSPX-[\w-]{16,}",
    b"eyJ": rb"eyJ[\w-]{8,}\.[\w-]{4,}(?:\.[\w-]*)?",
    b"hf_": rb"hf_[A-Za-z0-9]{20,}",
    b"npm_": rb"npm_[A-Za-z0-9]{20,}",
    b"pypi-": rb"pypi-[\w-]{20,}",
    b"whsec_": rb"whsec_\w{16,}",
    b"shpat_": rb"shpat_\w{16,}",
    b"lin_api_": rb"lin_api_\w{16,}",
    b"dop_v1_": rb"dop_v1_\w{16,}",
}
"""By their beginning; not preceded by a letter or digit."""
_AROUND: Final[Mapping[bytes, bytes]] = {
    b"-----BEGIN ": rb'-----BEGIN [A-Z0-9 ]{0,30}PRIVATE KEY(?:[^"\\-]|\\[^"]|-(?!----END))*'
    rb"(?:-----END [A-Z0-9 ]*-----)?",
    b"://": rb'://(?:[^/?#\s@"\\:]{0,200}:)?([^/?#\s@"\\]{1,400})@',
    b"curl ": rb"""curl (?:[^"\\\n;|]|\\\\\\n|\\[^n]){0,300}?(?<= )"""
    rb"""(?:-u|-U|--user|--proxy-user)[ =]?(\\"|')?[^\s:"'\\]{1,100}:"""
    rb"""((?(1)[^"'\\]{1,200}|[^\s"'\\]{1,200}))""",
    b'"-u"': rb'"-u"\s*,\s*"[^":\\]{1,100}:(?!\d+")([^"\\]{1,200})"',
    b'"--user"': rb'"--user"\s*,\s*"[^":\\]{1,100}:(?!\d+")([^"\\]{1,200})"',
    b"earer ": rb"earer +((?=[\w.~+/-]*[\d=])[\w.~+/=-]{8,})",
    b"asic ": rb"asic +((?=[\w.~+/-]*[\d=])[\w.~+/=-]{8,})",
}
"""If the pattern has groups, the last is the secret."""
FORMATS: Final = (*_KEYS, *_AROUND)
"""The literals to search for."""
_PATTERNS: Final = {
    literal: re.compile(pattern) for literal, pattern in (*_KEYS.items(), *_AROUND.items())
}
_PRIVATE_KEY: Final = b"-----BEGIN "
_RUN: Final = re.compile(rb"[\w-]*")
_LONG_MISMATCHES: Final = (b"sk-", b"eyJ")
"""Literals with a pattern that reads a whole run before it fails, and matches nowhere in it."""
_ESCAPE: Final = re.compile(rb"\\(?:[nrtbf]|u[0-9a-fA-F]{4})\Z")


def format_spans(data: bytes, literal: bytes, at: int) -> Found:
    """The secret that begins with a literal of `FORMATS` at this place, if there is one."""
    is_key = literal in _KEYS
    if is_key and _continues_word(data, at):
        return (), at
    found = _PATTERNS[literal].match(data, at)
    if found is None:
        return (), _run_end(data, at) if literal in _LONG_MISMATCHES else at
    until = at
    if is_key:
        until = min(found.end(), _run_end(data, at))
    elif literal == _PRIVATE_KEY:
        until = found.end()
    return (found.span(found.re.groups),), until


def _run_end(data: bytes, at: int) -> int:
    run = _RUN.match(data, at)
    return at if run is None else run.end()


def _continues_word(data: bytes, at: int) -> bool:
    """Whether a letter or digit is before this place that is not the end of an escape."""
    before = data[at - 1 : at]
    return before.isalnum() and _ESCAPE.search(data, max(0, at - 6), at) is None
