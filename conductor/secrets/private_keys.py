"""Find private keys in text, whole or without their first or last line. Pure.

A key without an end extends to the end of the text. Parts are found by their lines: 60 to 76 base64
characters that fill a line (after indentation, a line number, a diff sign or a quote), and the
base64 lines that follow. Other base64 in such lines, such as a certificate, counts as a key.
"""

from __future__ import annotations

from typing import Final

import attrs
import re2

from conductor.secrets.formats import KEY_HEADER, KEY_NAME
from conductor.secrets.regex_prefixes import read

__all__ = ["BODY", "body_end", "cut_line", "end_of", "is_body", "key_end"]

_BEFORE: Final = r"[ \t>]*(?:\d{1,7}[ \t]*[→:|\t][ \t]*)?[+\-]?[\"'`]?"
_LINE: Final = r"[A-Za-z0-9+/]{4,76}={0,2}"
_AFTER: Final = r"[\"'`,;]*[ \t]*"
BODY: Final = (
    rf"(?:(?m:^)|\\n){_BEFORE}(?P<secret>[A-Za-z0-9+/]{{60,76}}={{0,2}}"
    rf"|{_LINE}\r?\n[ \t]*-{{4,5}} ?END {KEY_NAME})"
)
"""A line of a key, or its last one with the end of the key."""

_HEADER: Final = re2.compile(KEY_HEADER)
_BODY: Final = re2.compile(BODY)
_FIRST_LINE: Final = re2.compile(r"[A-Za-z0-9+/]{1,76}={0,2}\r?\n")
_END: Final = re2.compile(rf"-{{4,5}} ?END {KEY_NAME}")
_NEXT: Final = rf"{_AFTER}(?:\r?\n|\\n){_BEFORE}{_LINE}"
_NEXT_LINE: Final = re2.compile(_NEXT)
_NEXT_BEGUN: Final = re2.compile(read(_NEXT).prefixes)
_WHOLE: Final = rf"{_BEFORE}[A-Za-z0-9+/]{{0,76}}={{0,2}}{_AFTER}\r?"
_WHOLE_LINE: Final = re2.compile(_WHOLE)
_LINE_BEGUN: Final = re2.compile(read(_WHOLE).prefixes)
_LONGEST_LINE: Final = 200
"""Characters of a key's last line."""
_LINE_ENDS: Final = re2.compile(rf"{_AFTER}(?:[\r\n\\]|\z)")


def cut_line(data: bytes) -> int:
    """Return the length of the remainder of a cut-off key line at the start of a text."""
    first = _FIRST_LINE.match(data)
    if first is None or (line := _BODY.match(data, first.end())) is None:
        return 0
    return first.end() if body_end(data, *line.span(1)) is not None else 0


def key_end(data: bytes, header_end: int) -> int:
    """Return the end of the key with a first line that ends at `header_end`."""
    found = _END.search(data, header_end)
    return len(data) if found is None else int(found.end())


@attrs.define(eq=False)
class KeyEnd:
    """Finds the end of a key that is too long to hold back, in text that arrives in chunks."""

    _last: str = attrs.field(default="", init=False, repr=False)

    def __call__(self, text: str) -> str | None:
        """Return the text after the end of the key; `None` before the end has arrived."""
        whole = self._last + text
        found = _END.search(whole)
        self._last = whole[-_LONGEST_LINE:]
        return None if found is None else whole[found.end() :]


@attrs.define(eq=False)
class BodyEnd:
    """Finds the end of key lines that are too long to hold back."""

    _last: str = attrs.field(default="", init=False, repr=False)
    """The last line, which may be incomplete."""

    def __call__(self, text: str) -> str | None:
        """Return the text from the first line that is not part of a key; `None` before it has
        arrived."""
        whole = self._last + text
        while "\n" in whole:
            line, _, rest = whole.partition("\n")
            if _WHOLE_LINE.fullmatch(line) is None:
                return whole
            whole = rest
        self._last = whole
        return None if _LINE_BEGUN.fullmatch(whole) else whole


def end_of(text: str) -> KeyEnd | BodyEnd | None:
    """Return the finder for the end of the key, or of the key lines, at the start of a text."""
    if _HEADER.match(text) is not None:
        return KeyEnd()
    return BodyEnd() if _BODY.match(text) is not None else None


def is_body(line: bytes) -> bool:
    """Whether a line has the mix of upper case, lower case and digits of random base64.

    Paths, names and hexadecimal hashes do not. Neither do three of ten thousand key lines; these
    are found if they follow another key line.
    """
    counts = (len(line.translate(None, others)) for others in _OTHERS)
    return all(count >= least for count, least in zip(counts, (9, 9, 2), strict=True))


_UPPER, _LOWER, _DIGITS = (
    b"ABCDEFGHIJKLMNOPQRSTUVWXYZ",
    b"abcdefghijklmnopqrstuvwxyz",
    b"0123456789",
)
_OTHERS: Final = [bytes(set(range(256)) - {*kind}) for kind in (_UPPER, _LOWER, _DIGITS)]


def body_end(data: bytes, start: int, end: int) -> tuple[int, bool] | None:
    """Return the end of the key lines that begin with the line from `start` to `end`, and whether
    more may follow after the data; `None` if that is not a key line.
    """
    line = data[start:end]
    if b"-" in line:  # with the end of the key
        return end, False
    if _LINE_ENDS.match(data, end) is None or not is_body(line):
        return None
    while found := _NEXT_LINE.match(data, end):
        if _LINE_ENDS.match(data, found.end()) is None:
            break
        end = found.end()
    return end, _NEXT_BEGUN.fullmatch(data, end) is not None
