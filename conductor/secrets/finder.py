"""Find secrets in text, in linear time, and replace them by placeholders.

RE2 matches the patterns. This module adds whether the end of an incomplete text may be the
beginning of a secret (`regex_prefixes`), and where a private key ends (`private_keys`).

A secret has the same placeholder at every occurrence, so that it can be restored in files that the
agent writes.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

import attrs
import re2

from conductor.secrets.formats import FORMATS, KEY_HEADER, URL_PASSWORD, text_pattern
from conductor.secrets.private_keys import BODY, body_end, cut_line, end_of, key_end
from conductor.secrets.regex_prefixes import SECRET, read

__all__ = ["PATTERNS", "HeldTail", "SecretFinder"]

PATTERNS: Final[Mapping[str, str]] = {
    "private-key": KEY_HEADER,
    "key-body": BODY,
    **{name: text_pattern(name) for name in FORMATS},
    "url-password": URL_PASSWORD,
}
"""The known formats. The secret is the group `secret`, or else the whole match."""

_MAX_REMEMBERED = 10_000
_MAX_REMEMBERED_CHARACTERS = 16 << 20
"""Maximum characters of all secrets that can be restored from placeholders."""
_MAX_MEMORY: Final = 64 << 20
"""Bytes for the program and the automaton of all patterns together."""
_NEVER_MATCHES: Final = r"[^\x00-\x{10ffff}]"
"""A pattern that matches nothing."""


@attrs.frozen
class _SecretSpan:
    """A secret in a text; positions are in bytes."""

    begins: int
    """Start of the pattern's match, which may be before the secret."""
    start: int
    end: int
    name: str
    is_open: bool
    """Whether it may continue after the end of the text."""
    is_rest: bool = False
    """Whether the match overlaps the previous secret."""


@attrs.frozen(eq=False)
class _KnownValue:
    """A secret that is known by value."""

    name: str
    value: bytes = attrs.field(repr=False)

    def find(self, data: bytes, start: int) -> _SecretSpan | None:
        """Return the first secret from `start` on."""
        at = data.find(self.value, start)
        if at < 0:
            return None
        return _SecretSpan(at, at, at + len(self.value), self.name, is_open=False)


@attrs.frozen(eq=False)
class _PatternKind:
    """Secrets that are found by one pattern."""

    name: str
    pattern: Any = attrs.field(repr=False)
    """Its group, if any, is the secret; otherwise the whole match is."""
    source: str

    def find(self, data: bytes, start: int) -> _SecretSpan | None:
        """Return the first secret from `start` on."""
        while (found := self.pattern.search(data, start)) is not None:
            (first, end), is_open = found.span(self.pattern.groups), False
            if first < 0:  # the group `secret` is in another alternative
                first, end = found.span()
            if first == end:
                start = found.end()
                continue
            if self.source is KEY_HEADER:
                end = key_end(data, end)
            elif self.source is BODY:
                lines = body_end(data, first, end)
                if lines is None:
                    start = found.end()
                    if data.find(b"\n", start - 1) < 0 and data.find(b"\\", start) < 0:
                        return None  # there is no other line
                    continue
                end, is_open = lines
            is_open = is_open or end == len(data)
            return _SecretSpan(found.start(), first, end, self.name, is_open)
        return None


@attrs.define(eq=False)
class SecretFinder:
    """Finds secrets, and keeps the placeholders of those found."""

    patterns: Mapping[str, str]
    values: Mapping[str, str] = attrs.field(repr=False)
    """Known secrets, by name."""
    _kinds: list[_KnownValue | _PatternKind] = attrs.field(init=False, repr=False)
    _known: list[bytes] = attrs.field(init=False, repr=False)
    _any: Any = attrs.field(init=False, repr=False)
    """Matches every text that contains a secret found by pattern: a fast check."""
    _begun: Any = attrs.field(init=False, repr=False)
    """Matches an end of a text that may be the beginning of a secret."""
    _shortest: int = attrs.field(init=False)
    """Characters of the shortest secret."""
    _placeholders: dict[str, str] = attrs.field(factory=dict, init=False, repr=False)
    _found: dict[str, str] = attrs.field(factory=dict, init=False, repr=False)
    _characters: int = attrs.field(default=0, init=False)
    """Total characters of the secrets in `_placeholders`."""
    _placeholder: Any = attrs.field(init=False, default=re.compile(r"\[redacted:[^\[\]\s]+\]"))

    def __attrs_post_init__(self) -> None:
        # The longest value first: one may be a prefix of another.
        values = sorted(self.values.items(), key=lambda item: -len(item[1]))
        known = [_KnownValue(name, form) for name, value in values for form in _forms(value)]
        sources = {name: read(pattern) for name, pattern in self.patterns.items()}
        kinds = [
            _PatternKind(name, _compiled(source.whole), self.patterns[name])
            for name, source in sources.items()
        ]
        self._kinds, self._known = [*known, *kinds], [each.value for each in known]
        self._any = _compiled("|".join(_ungrouped(each.whole) for each in sources.values()))
        begun = "|".join(_ungrouped(each.prefixes) for each in sources.values())
        self._begun = _compiled(rf"(?:{begun})\z")
        lengths = [each.shortest for each in sources.values()]
        self._shortest = min(lengths + [len(value) for _, value in values], default=0)

    def redact(self, text: str, start: int = 0) -> str:
        """Return the text from `start` on, its secrets replaced by placeholders."""
        if len(text) < self._shortest:
            return text[start:]
        data, shown = _bytes(text), []
        at = start and len(_bytes(text[:start]))
        for found in self._secrets(data, at):
            shown += [
                _text(data[at : found.start]),
                self._placeholder_of(_text(data[found.start : found.end]), found.name),
            ]
            at = found.end
        return "".join([*shown, _text(data[at:])]) if shown else text[start:]

    def redact_output(self, text: str) -> str:
        """Like `redact`, for a text that may begin in the middle of a key line."""
        for name, pattern in self.patterns.items():
            if pattern is BODY and (end := cut_line(_bytes(text))):
                return f"{self._placeholder_of(text[:end], name)}{self.redact(text[end:])}"
        return self.redact(text)

    def restore(self, text: str) -> str:
        """Return the text with its placeholders replaced by the secrets."""
        restored: str = self._placeholder.sub(lambda m: self._found.get(m[0], m[0]), text)
        return restored

    def split(self, text: str, start: int = 0, *, wait: bool = True) -> tuple[str, int]:
        """Return the redacted part of an incomplete text, from `start` on, that can be shown, and
        the position of the rest.

        Without `wait`, a complete secret is not held back as the possible beginning of another.
        """
        data = _bytes(text)
        at = start = len(_bytes(text[:start]))
        shown: list[str] = []
        begun, first = self._possible_start(data, start), (0, start, start)
        for found in self._secrets(data, start):
            if not found.is_rest:
                first = (len(shown), start, found.begins)
            if begun < at:
                begun = self._possible_start(data, at)
            if found.is_open or begun < found.begins or (wait and begun < found.end):
                # Overlapping secrets are held back together.
                count, start, begins = first
                del shown[count:]
                at = min(begun, begins)
                break
            shown += [
                _text(data[start : found.start]),
                self._placeholder_of(_text(data[found.start : found.end]), found.name),
            ]
            at = start = found.end
        else:
            at = self._possible_start(data, at) if begun < at else begun
        end = max(start, at)
        return "".join([*shown, _text(data[start:end])]), len(_text(data[:end]))

    def _secrets(self, data: bytes, start: int) -> Iterator[_SecretSpan]:
        """Yield the secrets from left to right; at one position, that of the first kind."""
        if self._any.search(data, start) is None and not any(map(data.__contains__, self._known)):
            return
        kinds = [(kind, kind.find(data, start)) for kind in self._kinds]
        nexts = [(kind, found) for kind, found in kinds if found is not None]
        while nexts:
            leftmost = min((found for _, found in nexts), key=lambda found: found.start)
            overlapping = [found for _, found in nexts if found.begins < leftmost.end]
            if overlapping == [leftmost]:
                yield leftmost
            else:
                yield attrs.evolve(
                    leftmost,
                    begins=min(found.begins for found in overlapping),
                    is_open=any(found.is_open for found in overlapping),
                )
            start = leftmost.end
            after = [(kind, _after(kind, found, data, start)) for kind, found in nexts]
            nexts = [(kind, found) for kind, found in after if found is not None]

    def _possible_start(self, data: bytes, start: int) -> int:
        """Return the position of a possible beginning of a secret; the end if there is none."""
        found = self._begun.search(data, start)
        first = len(data) if found is None else int(found.start())
        for value in self._known:
            at = max(start, len(data) - len(value) + 1)
            while (at := data.find(value[:1], at, first)) >= 0:
                if value.startswith(data[at:]):
                    first = at
                    break
                at += 1
        return first

    def _placeholder_of(self, secret: str, name: str) -> str:
        known = self._placeholders.get(secret)
        if known is not None:
            return known
        characters = self._characters + len(secret)
        if len(self._placeholders) >= _MAX_REMEMBERED or characters > _MAX_REMEMBERED_CHARACTERS:
            return f"[redacted:{name}]"
        self._characters = characters
        placeholder = f"[redacted:{name}:{len(self._placeholders) + 1}]"
        self._placeholders[secret], self._found[placeholder] = placeholder, secret
        return placeholder


@attrs.define(eq=False)
class HeldTail:
    """Redacts one text that arrives in chunks: an end that may begin a secret is held back.

    At most `hold` characters are held back; of a longer secret, the placeholder is shown, and the
    text after its end.
    """

    secrets: SecretFinder
    hold: int
    _text: str = attrs.field(default="", repr=False, init=False)
    """The last character that was shown, which decides whether a word begins after it, then the
    held-back text."""
    _start: int = attrs.field(default=0, init=False)
    _find_end: Callable[[str], str | None] | None = attrs.field(default=None, init=False)
    """Set in a secret that is too long to hold back: returns the text after its end, if any."""

    @property
    def held(self) -> int:
        return len(self._text) - self._start

    def feed(self, text: str) -> str:
        """Return the text that can be shown after the chunk `text`."""
        if self._find_end is not None:
            behind = self._find_end(text)
            if behind is None:
                return ""
            text, self._find_end = behind, None
        whole = self._text + text
        shown, end = self.secrets.split(whole, self._start)
        if len(whole) - end > self.hold:
            more, end = self.secrets.split(whole, end, wait=False)
            shown += more
        if len(whole) - end > self.hold:
            self._find_end = end_of(whole[end:]) or _after_word
            shown, end = shown + "[redacted:too-long]", len(whole)
        self._start = min(end, 1)
        self._text = whole[end - self._start :]
        return shown

    def end(self) -> str:
        """Return the held-back text at the end of the text, redacted."""
        shown = self.secrets.redact(self._text, self._start)
        self._text, self._start, self._find_end = "", 0, None
        return shown


def _after(
    kind: _KnownValue | _PatternKind, found: _SecretSpan, data: bytes, start: int
) -> _SecretSpan | None:
    """Return the next secret of a kind from `start` on: `found`, or its rest, or another one."""
    if found.begins >= start:
        return found
    if found.end > start:  # it overlaps the previous secret
        return attrs.evolve(found, begins=start, start=max(start, found.start), is_rest=True)
    return kind.find(data, start)


def _forms(value: str) -> list[bytes]:
    """Return the value as in a text, and as in terminal output, which is read as Latin-1."""
    data = _bytes(value)
    return [data] if value.isascii() else [data, _bytes(data.decode("latin-1"))]


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")


def _text(data: bytes) -> str:
    return data.decode("utf-8", "surrogatepass")


def _compiled(source: str) -> Any:
    options = re2.Options()
    options.max_mem, options.log_errors = _MAX_MEMORY, False
    return re2.compile(source or _NEVER_MATCHES, options)


def _ungrouped(source: str) -> str:
    return source.replace(f"(?P<{SECRET}>", "(?:")


def _after_word(text: str) -> str | None:
    """Return the text from its first white space on; `None` if it has none."""
    return next((text[at:] for at, each in enumerate(text) if each.isspace()), None)
