r"""Find secrets in text, whole or in chunks, and replace them by placeholders, in linear time.

RE2 matches the patterns. It has no partial matching, which text that arrives in chunks needs: its
end may be the beginning of a secret. So `prefix_pattern` derives from each pattern one that matches
all prefixes of its matches; `(?:prefixes)\z` finds the leftmost such end.

A secret has the same placeholder at every occurrence, so that it can be restored in files that the
agent writes. Secrets that overlap are one, up to the end of the longest.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import attrs
import re2

from conductor.secrets.formats import FORMATS, KEY_NAME, PRIVATE_KEY, URL_PASSWORD, text_pattern

__all__ = ["PATTERNS", "HeldTail", "SecretFinder"]

_LINE_BEGINS: Final = (
    r"(?:(?m:^)|\\n)[ \t>]*(?:\d{1,7}[ \t]*[→:|\t][ \t]*)?[+\-]?[\"'`]?"  # number, diff sign, quote
)
_LINE_ENDS: Final = r"[\"'`,;]*[ \t]*"
_SHORT_LINE: Final = rf"{_LINE_ENDS}(?:\r?\n)?{_LINE_BEGINS}[A-Za-z0-9+/]{{4,59}}={{0,2}}"
_KEY_BODY: Final = (
    rf"{_LINE_BEGINS}(?P<secret>(?:\A[A-Za-z0-9+/]{{1,59}}={{0,2}}\r?\n)?"
    rf"[A-Za-z0-9+/]{{60,76}}={{0,2}}(?:{_SHORT_LINE})?"
    rf"|[A-Za-z0-9+/]{{4,76}}={{0,2}}\r?\n[ \t]*-{{4,5}} ?END {KEY_NAME})"
    rf"{_LINE_ENDS}(?:[\r\n\\]|\z)"
)
"""A line of a private key that is read in parts, 60 to 76 base64 characters, with the short ones
beside it: the last one, and one that is cut at the start of an output; or the last one with the end
of the key."""

PATTERNS: Final[Mapping[str, str]] = {
    "private-key": PRIVATE_KEY,
    "key-body": _KEY_BODY,
    **{name: text_pattern(name) for name in FORMATS},
    "url-password": URL_PASSWORD,
}
"""The known formats. The secret is the group `secret`, or else the whole match."""

_MAX_REMEMBERED: Final = 16 << 20
"""Bytes for the secrets that can be restored from placeholders."""
_BYTES_PER_SECRET: Final = 500
"""Memory for a secret beside its characters."""
_MAX_MEMORY: Final = 64 << 20
"""Bytes for the program and the automaton of all patterns together."""
_NEVER_MATCHES: Final = r"[^\x00-\x{10ffff}]"


@attrs.frozen
class _SecretSpan:
    """A secret in a text; positions are in bytes."""

    begins: int
    """Start of the pattern's match, which may be before the secret."""
    start: int
    end: int
    name: str


@attrs.define(eq=False)
class SecretFinder:
    """Finds secrets, and keeps the placeholders of those found."""

    patterns: Mapping[str, str]
    values: Mapping[str, str] = attrs.field(repr=False)
    """Known secrets, by name."""
    _known: list[tuple[str, bytes]] = attrs.field(init=False, repr=False)
    _compiled: dict[str, Any] = attrs.field(init=False, repr=False)
    _any: Any = attrs.field(init=False, repr=False)
    """Matches every text that contains a secret found by pattern: a fast check."""
    _begun: Any = attrs.field(init=False, repr=False)
    """Matches an end of a text that may be the beginning of a secret."""
    _placeholders: dict[str, str] = attrs.field(factory=dict, init=False, repr=False)
    _found: dict[str, str] = attrs.field(factory=dict, init=False, repr=False)
    _room: int = attrs.field(default=_MAX_REMEMBERED, init=False)
    _placeholder: Any = attrs.field(init=False, default=re.compile(r"\[redacted:[^\[\]\s]+\]"))

    def __attrs_post_init__(self) -> None:
        # The longest value first: one may be a prefix of another.
        values = sorted(self.values.items(), key=lambda item: -len(item[1]))
        self._known = [(name, form) for name, value in values for form in _forms(value)]
        sources = {name: prefix_pattern(pattern) for name, pattern in self.patterns.items()}
        self._compiled = {name: _compile(each.whole) for name, each in sources.items()}
        self._any = _compile("|".join(_ungrouped(each.whole) for each in sources.values()))
        begun = "|".join(_ungrouped(each.prefixes) for each in sources.values())
        self._begun = _compile(rf"(?:{begun})\z")

    def redact(self, text: str) -> str:
        """Return the text with its secrets replaced by placeholders."""
        data = _bytes(text)
        found = self._spans(data, 0)
        return _text(self._replaced(data, 0, found, len(data))) if found else text

    def restore(self, text: str) -> str:
        """Return the text with its placeholders replaced by the secrets."""
        restored: str = self._placeholder.sub(lambda m: self._found.get(m[0], m[0]), text)
        return restored

    def _spans(self, data: bytes, start: int) -> list[_SecretSpan]:
        """The secrets from `start` on, from left to right, overlapping ones as one."""
        found = [each for name, value in self._known for each in _values(data, start, name, value)]
        if self._any.search(data, start) is not None:
            for name, pattern in self._compiled.items():
                is_key_body = self.patterns[name] is _KEY_BODY
                found += _matches(data, start, name, pattern, is_key_body=is_key_body)
        merged: list[_SecretSpan] = []
        for each in sorted(found, key=lambda found: found.start):  # at one position, the first kind
            if merged and each.start < (last := merged[-1]).end:
                begins, end = min(last.begins, each.begins), max(last.end, each.end)
                merged[-1] = attrs.evolve(last, begins=begins, end=end)
            else:
                merged.append(each)
        return merged

    def _possible_start(self, data: bytes, start: int) -> int:
        """The position of a possible beginning of a secret; the end if there is none."""
        found = self._begun.search(data, start)
        first = len(data) if found is None else int(found.start())
        for _, value in self._known:
            at = max(start, len(data) - len(value) + 1)
            while (at := data.find(value[:1], at, first)) >= 0:
                if value.startswith(data[at:]):
                    first = at
                    break
                at += 1
        return first

    def _replaced(self, data: bytes, start: int, found: Sequence[_SecretSpan], end: int) -> bytes:
        """A part of a text, its secrets replaced by placeholders."""
        parts: list[bytes] = []
        for each in found:
            secret = _text(data[each.start : each.end])
            parts += (data[start : each.start], self._placeholder_of(secret, each.name).encode())
            start = each.end
        return b"".join((*parts, data[start:end]))

    def _placeholder_of(self, secret: str, name: str) -> str:
        known = self._placeholders.get(secret)
        if known is not None:
            return known
        size = len(secret) + _BYTES_PER_SECRET
        if size > self._room:
            return f"[redacted:{name}]"
        self._room -= size
        placeholder = f"[redacted:{name}:{len(self._placeholders) + 1}]"
        self._placeholders[secret], self._found[placeholder] = placeholder, secret
        return placeholder


@attrs.define(eq=False)
class HeldTail:
    """Redacts one text that arrives in chunks: an end that may begin a secret is held back.

    At most `hold` bytes are held back; of a longer secret, the placeholder is shown, and the text
    from the next white space on.
    """

    secrets: SecretFinder
    hold: int
    _data: bytes = attrs.field(default=b"", repr=False, init=False)
    """The last byte that was shown, which decides whether a word begins after it, then the
    held-back text."""
    _start: int = attrs.field(default=0, init=False)
    _is_too_long: bool = attrs.field(default=False, init=False)
    """In a secret that is too long to hold back."""

    def feed(self, text: str) -> str:
        """Return the text that can be shown after the chunk `text`."""
        if self._is_too_long:
            space = re.search(r"\s", text)
            if space is None:
                return ""
            text, self._is_too_long = text[space.start() :], False
        data, start = self._data + _bytes(text), self._start
        found = self.secrets._spans(data, start)
        shown, end = self._split(data, start, found, self.secrets._possible_start(data, start))
        if len(data) - end > self.hold:
            # A whole secret is no longer held back as the possible beginning of another one.
            found = [each for each in found if end <= each.start and each.end < len(data)]
            begun = self.secrets._possible_start(data, found[-1].end if found else end)
            more, end = self._split(data, end, found, begun)
            shown += more
        if len(data) - end > self.hold:
            shown, end, self._is_too_long = shown + b"[redacted:too-long]", len(data), True
        self._start = min(end, 1)
        self._data = data[end - self._start :]
        return _text(shown)

    def end(self) -> str:
        """Return the held-back text at the end of the text, redacted."""
        data, start = self._data, self._start
        self._data, self._start, self._is_too_long = b"", 0, False
        found = self.secrets._spans(data, start)
        return _text(self.secrets._replaced(data, start, found, len(data)))

    def _split(
        self, data: bytes, start: int, found: Sequence[_SecretSpan], begun: int
    ) -> tuple[bytes, int]:
        """The redacted text from `start` on that can be shown, and where the rest begins, for the
        place of a possible secret at the end."""
        for each in reversed(found):
            if each.end > begun:  # secrets that overlap are held back together
                begun = min(begun, each.begins)
        whole = [each for each in found if each.end <= begun]
        return self.secrets._replaced(data, start, whole, begun), begun


def _values(data: bytes, start: int, name: str, value: bytes) -> Iterator[_SecretSpan]:
    """The places of a value that is known to be secret."""
    while (start := data.find(value, start)) >= 0:
        yield _SecretSpan(start, start, start + len(value), name)
        start += len(value)


def _matches(
    data: bytes, start: int, name: str, pattern: Any, *, is_key_body: bool
) -> Iterator[_SecretSpan]:
    """The secrets that a pattern finds: its group, if it has one and that matches, or all of it."""
    while (found := pattern.search(data, start)) is not None:
        first, end = found.span(pattern.groups)
        if first < 0:  # the group is in another alternative
            first, end = found.span()
        start = max(end, found.start() + 1)
        if first < end and (not is_key_body or _is_key_line(data[first:end])):
            yield _SecretSpan(found.start(), first, end, name)


def _is_key_line(line: bytes) -> bool:
    """Whether a line has the mix of upper case, lower case and digits of random base64, or the end
    of a key. Paths, names and hexadecimal hashes have not, nor three of ten thousand key lines."""
    kinds = ((rb"[A-Z]", 9), (rb"[a-z]", 9), (rb"[0-9]", 2))
    return b"-" in line or all(len(re.findall(kind, line)) >= least for kind, least in kinds)


def _forms(value: str) -> list[bytes]:
    """Return the value as in a text, and as in terminal output, which is read as Latin-1."""
    data = _bytes(value)
    return [data] if value.isascii() else [data, _bytes(data.decode("latin-1"))]


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")


def _text(data: bytes) -> str:
    return data.decode("utf-8", "surrogatepass")


def _compile(source: str) -> Any:
    options = re2.Options()
    options.max_mem, options.log_errors = _MAX_MEMORY, False
    return re2.compile(source or _NEVER_MATCHES, options)


def _ungrouped(source: str) -> str:
    return source.replace(f"(?P<{_SECRET}>", "(?:")


# --- prefixes of patterns ---

_SECRET: Final = "secret"
"""Name of the only group that is kept."""
_COUNT: Final = re.compile(r"\{(\d+)(,?)(\d*)\}")
_FLAGS: Final = re.compile(r"\(\?([imsU]*)(?:-([imsU]+))?([:)])")
_NAME: Final = re.compile(r"\(\?P?<(\w+)>")
_ESCAPE: Final = re.compile(r"\\(?:x\{[^}]*\}|x..|[pP]\{[^}]*\}|[pP].|0?[0-7]{1,3}|.)", re.DOTALL)
_CLASS: Final = re.compile(r"\[\^?\]?(?:\[:\^?\w+:\]|\\.|[^\]\\])*\]", re.DOTALL)


@attrs.frozen
class PrefixPattern:
    """A part of a pattern without groups, and a pattern for the prefixes of its matches."""

    whole: str
    prefixes: str
    is_atom: bool = False
    """Whether it is a single character or an assertion."""


_EMPTY: Final = PrefixPattern("", "")


def prefix_pattern(pattern: str) -> PrefixPattern:
    """Parse a pattern that RE2 accepts, which is not validated; of its groups only `secret` is
    kept."""
    return _PatternParser(pattern).alternatives()


@attrs.define
class _PatternParser:
    pattern: str
    at: int = 0
    flags: frozenset[str] = frozenset()

    def alternatives(self) -> PrefixPattern:
        """Parse alternatives up to the end of the group."""
        outer, found = self.flags, [self.sequence()]
        while self.pattern[self.at : self.at + 1] == "|":
            self.at += 1
            found.append(self.sequence())
        self.flags = outer
        if len(found) == 1:
            return found[0]
        whole = "|".join(each.whole for each in found)
        prefixes = "|".join(each.prefixes for each in found)
        return PrefixPattern(f"(?:{whole})", f"(?:{prefixes})")

    def sequence(self) -> PrefixPattern:
        parts: list[PrefixPattern] = []
        while self.at < len(self.pattern) and self.pattern[self.at] not in "|)":
            if self.pattern.startswith("\\Q", self.at):
                end = self.pattern.find("\\E", self.at)
                end = len(self.pattern) if end < 0 else end
                parts += [self.atom(_escaped(char)) for char in self.pattern[self.at + 2 : end]]
                self.at = end + 2
            elif self.pattern.startswith("(", self.at):
                parts.append(self.group())
            else:
                parts.append(self.single())
            if parts and (count := self.count()) is not None:
                parts[-1] = _repeated(parts[-1], *count)
        return _joined(parts)

    def group(self) -> PrefixPattern:
        if flags := _FLAGS.match(self.pattern, self.at):
            outer, self.at = self.flags, flags.end()
            self.flags = (self.flags | {*flags[1]}) - {*(flags[2] or "")}
            if flags[3] == ")":  # flags for the rest of the enclosing group
                return _EMPTY
            found = self.alternatives()
            self.flags = outer
        else:
            name = _NAME.match(self.pattern, self.at)
            self.at = name.end() if name else self.at + 1
            found = self.alternatives()
            if name and name[1] == _SECRET:
                found = attrs.evolve(found, whole=f"(?P<{_SECRET}>{found.whole})", is_atom=False)
        self.at += 1
        return found

    def single(self) -> PrefixPattern:
        start, char = self.at, self.pattern[self.at]
        matcher = {"\\": _ESCAPE, "[": _CLASS}.get(char)
        found = matcher.match(self.pattern, start) if matcher else None
        self.at = found.end() if found else start + 1
        return self.atom(self.pattern[start : self.at])

    def atom(self, written: str) -> PrefixPattern:
        flags = "".join(sorted(self.flags - {"U"}))
        whole = f"(?{flags}:{written})" if flags else written
        return PrefixPattern(whole, f"(?:{whole})?", is_atom=True)

    def count(self) -> tuple[int, int | None, str] | None:
        """Parse a quantifier, if one follows: minimum, maximum (`None`: unlimited), `?` if lazy."""
        char = self.pattern[self.at : self.at + 1]
        if char and char in "*+?":
            self.at += 1
            low, high = {"*": (0, None), "+": (1, None), "?": (0, 1)}[char]
        elif counted := _COUNT.match(self.pattern, self.at):
            self.at = counted.end()
            low = int(counted[1])
            high = low if not counted[2] else int(counted[3]) if counted[3] else None
        else:
            return None
        lazy = self.pattern[self.at : self.at + 1] == "?"
        self.at += lazy
        return low, high, "?" if lazy != ("U" in self.flags) else ""


def _joined(parts: Sequence[PrefixPattern]) -> PrefixPattern:
    if not parts:
        return _EMPTY
    prefixes = parts[-1].prefixes
    for part in reversed(parts[:-1]):
        more = f"{part.whole}{prefixes}"
        prefixes = f"(?:{more})?" if part.is_atom else f"(?:{more}|{part.prefixes})"
    if len(parts) == 1:
        return parts[0]
    whole = "".join(part.whole for part in parts)
    return PrefixPattern(f"(?:{whole})", prefixes)


def _repeated(part: PrefixPattern, low: int, high: int | None, lazy: str) -> PrefixPattern:
    most = "" if high is None else str(high)
    whole = f"(?:{part.whole}){{{low},{most}}}{lazy}"
    if high == 0:
        prefixes = ""
    else:
        before = "*" if high is None else f"{{0,{high - 1}}}"
        prefixes = f"(?:{part.whole}){before}{part.prefixes}"
    return PrefixPattern(whole, prefixes)


def _escaped(char: str) -> str:
    return char if char.isalnum() or ord(char) > 127 else f"\\x{{{ord(char):x}}}"
