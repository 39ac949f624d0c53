"""Mask secrets in the lines of a trace file.

Secrets are found by known value (`registered`), by form (`formats`) and by a name beside them
(`members`), in all that is written: payloads, also cut ones, stderr, log events, names. A
search for some eighty literals decides which places are looked at, so that text without secrets
costs 0.3 µs for 100 bytes and 0.3 ms for a megabyte. It is made by a few automata that are
small enough for vector instructions (`_MAX_LITERALS`).
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final, TypeAlias

import attrs
from ahocorasick_rs import MATCHKIND_LEFTMOST_FIRST, BytesAhoCorasick

from conductor.secrets.formats import LITERALS, Found, Span, span_at
from conductor.secrets.members import NAMES, PLACES, member_spans, place_spans
from conductor.secrets.registered import MASK, merged, registered_secrets

__all__ = ["Masker", "current_masker", "mask", "mask_text"]

_MASK: Final = MASK.encode()
_MAX_LITERALS: Final = 60
"""Literals in one automaton. The library uses vector instructions for 64 literals at most."""
_DIGITS: Final = b"0123456789.+-eE"
_ESCAPED: Final = re.compile(rb"\\.", re.DOTALL)
_VOCABULARY: Final = frozenset(
    b"""request response notification handler stderr protocol method session params payload sender
    receiver elapsed wire_id chain masked cancelled is_error error_domain mcp_server conductor
    components version location client plugin process remote parent forwarded answered
    dropped failed component message waited outcome fields payloads successor initialize""".split()
)
"""Words of the format of trace files: masking them would make a file unreadable."""

Check = Callable[[bytes, int], Found]
"""Gets the place of a literal that was found."""
_Searched: TypeAlias = tuple[bytes, Check]


@attrs.define(eq=False)
class Masker:
    """Masks the secrets that are registered now, and others that are recognized."""

    known: frozenset[str] = attrs.field(factory=registered_secrets)
    _searches: list[tuple[BytesAhoCorasick, list[Check]]] = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        values = {each.encode(errors="surrogateescape") for each in self.known} - _VOCABULARY
        known: list[_Searched] = [
            (each, partial(_known, literal=each)) for each in sorted(values, key=len, reverse=True)
        ]
        checks: list[_Searched] = [
            *((each, partial(span_at, literal=each)) for each in LITERALS),
            *((each, partial(place_spans, literal=each)) for each in PLACES),
            *((each, member_spans) for each in NAMES),
        ]
        # The fewer literals begin like usual text, the faster is a search: so two have half each.
        rare = [each for each in checks if not _is_lower(each[0])]
        frequent = sorted(
            (each for each in checks if _is_lower(each[0])), key=lambda each: len(each[0])
        )
        half = len(frequent) // 2
        parts = (known, rare, frequent[:half], frequent[half:])
        self._searches = [
            _search(each[at : at + _MAX_LITERALS])
            for each in parts
            for at in range(0, len(each), _MAX_LITERALS)
        ]

    def spans(self, data: bytes) -> list[Span]:
        """The secrets in some JSON, in order; they do not overlap."""
        found: list[Span] = []
        for search, checks in self._searches:
            if matches := search.find_matches_as_indexes(data):
                until: dict[int, int] = {}
                for index, start, _ in matches:
                    if start >= until.get(index, 0):
                        spans, until[index] = checks[index](data, start)
                        found += spans
        return merged(found) if found else found

    def mask(self, data: bytes, *, are_lines: bool = False) -> bytes:
        """JSON with its secrets replaced by `***`, the same object if it has none.

        Digits of numbers are replaced by ones. Changed lines of a trace file say so (`masked`).
        """
        spans = self.spans(data)
        if not spans:
            return data
        parts: list[bytes] = []
        strings = _Strings(data)
        done, line_end = 0, -1
        for start, end in spans:
            if are_lines and start > line_end:
                done = _finish_line(parts, data, done, line_end)
                line_end = data.find(b"\n", start)
            parts += (data[done:start], strings.replacement(start, end))
            done = end
        done = _finish_line(parts, data, done, line_end)
        return b"".join((*parts, data[done:]))


def mask(data: bytes) -> bytes:
    """`Masker.mask` with the secrets that are registered now."""
    return current_masker().mask(data)


def mask_text(text: str) -> str:
    """A text with its secrets replaced by `***`, as in a trace."""
    encoded = json.dumps(text, ensure_ascii=False).encode(errors="surrogatepass")
    masked = mask(encoded)
    return text if masked is encoded else str(json.loads(masked.decode(errors="surrogatepass")))


def current_masker() -> Masker:
    global _masker
    known = registered_secrets()
    if _masker is None or _masker.known is not known:
        _masker = Masker(known)
    return _masker


_masker: Masker | None = None


def _is_lower(literal: bytes) -> bool:
    return literal[:3].isalpha() and not literal[:3].isupper()


def _search(checks: Sequence[_Searched]) -> tuple[BytesAhoCorasick, list[Check]]:
    literals = [literal for literal, _ in checks]
    return BytesAhoCorasick(literals, MATCHKIND_LEFTMOST_FIRST), [check for _, check in checks]


def _known(data: bytes, at: int, literal: bytes) -> Found:
    return ((at, at + len(literal)),), at


@attrs.define(eq=False)
class _Strings:
    """Tells which places of JSON lines are in a string; to be asked in order."""

    data: bytes
    _at: int = attrs.field(default=0, init=False)
    _is_inside: bool = attrs.field(default=False, init=False)

    def replacement(self, start: int, end: int) -> bytes:
        """The replacement of a secret: of a number, another number."""
        secret = self.data[start:end]
        if secret.strip(_DIGITS) or self._are_inside(start):
            return _MASK
        return b"1" * len(secret)

    def _are_inside(self, at: int) -> bool:
        line = self.data.rfind(b"\n", self._at, at) + 1
        if line:
            self._at, self._is_inside = line, False
        text = _ESCAPED.sub(b"", self.data[self._at : at])
        self._is_inside ^= bool(text.count(b'"') % 2)
        self._at = at - text.endswith(b"\\")  # an escape that goes on behind this place
        return self._is_inside


def _finish_line(parts: list[bytes], lines: bytes, done: int, end: int) -> int:
    """Append the rest of a line in which something was masked; returns its end."""
    if end < 0:
        return done
    rest = lines[done:end]
    if rest.endswith(b"}"):
        rest = rest[:-1] + b',"masked":true}'
    parts.append(rest)
    return end
