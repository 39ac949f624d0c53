"""Finding secrets in texts, also in texts that come in pieces.

`regex` rather than `re`: its partial matches tell, for any pattern, whether the end of what came so
far may be the beginning of a secret. Only such an end is held back, and no more than `hold`
characters of it.

A secret is replaced by a placeholder that is the same wherever it is found, so what an agent writes
back can be put right again.
"""

from __future__ import annotations

import fnmatch
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import attrs
import regex

__all__ = ["PATTERNS", "Secrets", "Tail", "check_patterns", "environment_values", "walk"]

PATTERNS: Final[Mapping[str, str]] = {
    "private-key": r"-----BEGIN [A-Z ]*PRIVATE KEY-----[\s\S]+?-----END [A-Z ]*PRIVATE KEY-----",
    "anthropic-key": r"(?<![A-Za-z0-9])sk-ant-[A-Za-z0-9_\-]{20,}",
    "openai-key": r"(?<![A-Za-z0-9])sk-(?:proj-|svcacct-)?[A-Za-z0-9_\-]{20,}",
    "github-token": r"(?<![A-Za-z0-9])(?:gh[pousr]_[A-Za-z0-9]{36,}|github_pat_[A-Za-z0-9_]{50,})",
    "gitlab-token": r"(?<![A-Za-z0-9])glpat-[A-Za-z0-9_\-]{20,}",
    "slack-token": r"(?<![A-Za-z0-9])xox[abposr]-[A-Za-z0-9\-]{10,}",
    "aws-key-id": r"(?<![A-Za-z0-9])(?:AKIA|ASIA)[A-Z0-9]{16}(?![A-Za-z0-9])",
    "google-key": r"(?<![A-Za-z0-9])AIza[A-Za-z0-9_\-]{35}",
    "stripe-key": r"(?<![A-Za-z0-9])[rs]k_(?:live|test)_[A-Za-z0-9]{20,}",
    "jwt": r"(?<![A-Za-z0-9])eyJ[A-Za-z0-9_\-]{10,}\.eyJ[A-Za-z0-9_\-]{10,}\.[A-Za-z0-9_\-]{10,}",
    "url-password": r"://[^\s:/@]+:[^\s/@]{3,}@",
}
"""What is looked for unless the options say otherwise."""

_REMEMBERED = 10_000
_NOT_TEXT = frozenset({"type", "sessionUpdate", "mimeType", "data", "blob"})


def environment_values(
    globs: Sequence[str], environ: Mapping[str, str], shortest: int
) -> dict[str, str]:
    """The values of variables whose names match, by name; what is short is no secret."""
    return {
        name: value
        for name, value in environ.items()
        if len(value) >= shortest and any(fnmatch.fnmatchcase(name, glob) for glob in globs)
    }


@attrs.define(eq=False)
class Secrets:
    """What is a secret, and the placeholders of those that were found."""

    patterns: Mapping[str, str]
    values: Mapping[str, str] = attrs.field(repr=False)
    """Known secrets, by name."""
    _names: list[str] = attrs.field(init=False)
    _regex: Any = attrs.field(init=False, repr=False)
    _placeholders: dict[str, str] = attrs.field(factory=dict, init=False, repr=False)
    _found: dict[str, str] = attrs.field(factory=dict, init=False, repr=False)
    _placeholder: Any = attrs.field(init=False, default=regex.compile(r"\[redacted:[^\[\]\s]+\]"))

    def __attrs_post_init__(self) -> None:
        # The longest value first: one may begin like another.
        known = sorted(self.values.items(), key=lambda item: -len(item[1]))
        parts = [(name, regex.escape(value)) for name, value in known] + [*self.patterns.items()]
        self._names = [name for name, _ in parts]
        # Every secret is a group of its own; groups inside patterns come after it.
        branches = (f"(?P<s{number}_>{pattern})" for number, (_, pattern) in enumerate(parts))
        self._regex = regex.compile("|".join(branches) or r"(?!)")

    def redact(self, text: str, start: int = 0) -> str:
        """The text from `start` on, without its secrets."""
        shown = []
        for found in self._regex.finditer(text, start):
            shown += [text[start : found.start()], self._replaced(found)]
            start = found.end()
        return "".join([*shown, text[start:]])

    def restore(self, text: str) -> str:
        """The text with the secrets that its placeholders stand for."""
        restored: str = self._placeholder.sub(lambda m: self._found.get(m[0], m[0]), text)
        return restored

    def split(self, text: str, start: int = 0) -> tuple[str, int]:
        """What of an unfinished text, from `start` on, can be shown, and where the rest begins."""
        shown = []
        while found := self._regex.search(text, start, partial=True):
            shown.append(text[start : found.start()])
            if found.partial or found.end() == len(text):  # more of it may come
                return "".join(shown), found.start()
            shown.append(self._replaced(found))
            start = found.end()
        return "".join([*shown, text[start:]]), len(text)

    def _replaced(self, found: Any) -> str:
        name = self._names[int(found.lastgroup[1:-1])] if found.lastgroup else "secret"
        secret = found[0]
        known = self._placeholders.get(secret)
        if known is not None:
            return known
        if len(self._placeholders) >= _REMEMBERED:
            return f"[redacted:{name}]"
        placeholder = f"[redacted:{name}:{len(self._placeholders) + 1}]"
        self._placeholders[secret], self._found[placeholder] = placeholder, secret
        return placeholder


@attrs.define(eq=False)
class Tail:
    """The end of one stream of text that is held back."""

    secrets: Secrets
    hold: int
    _text: str = attrs.field(default="", repr=False, init=False)
    """What is held back, after the last character that was not: a word may begin there or not."""
    _start: int = attrs.field(default=0, init=False)
    _swallowing: bool = attrs.field(default=False, init=False)
    """In the middle of a secret that was too long to hold."""

    @property
    def held(self) -> int:
        return len(self._text) - self._start

    def feed(self, text: str) -> str:
        """What can be shown now that `text` has come."""
        if self._swallowing:
            text = _after_word(text)
            self._swallowing = not text
        whole = self._text + text
        shown, end = self.secrets.split(whole, self._start)
        if len(whole) - end > self.hold:
            shown, end, self._swallowing = shown + "[redacted:too-long]", len(whole), True
        self._start = min(end, 1)
        self._text = whole[end - self._start :]
        return shown

    def flush(self) -> str:
        """What was held back, now that nothing more comes."""
        shown = self.secrets.redact(self._text, self._start)
        self._text, self._start, self._swallowing = "", 0, False
        return shown


def _after_word(text: str) -> str:
    """The text from its first white space on."""
    return next((text[at:] for at, each in enumerate(text) if each.isspace()), "")


def walk(value: Any, change: Callable[[str], str]) -> Any:
    """JSON with every text in it changed; ids, and data that is no text, stay as they are."""
    match value:
        case str():
            return change(value)
        case list():
            return [walk(item, change) for item in value]
        case dict():
            return {
                key: item if key in _NOT_TEXT or key.endswith("Id") else walk(item, change)
                for key, item in value.items()
            }
    return value


def check_patterns(patterns: Mapping[str, str]) -> None:
    """Raise `ValueError` for what is no usable pattern."""
    for name, pattern in patterns.items():
        try:
            compiled = regex.compile(pattern)
        except regex.error as exc:
            raise ValueError(f"`{name}` is not a regular expression: {exc}") from None
        if compiled.fullmatch(""):
            raise ValueError(f"`{name}` matches everywhere: it matches the empty text")
