"""Redact a text that arrives in chunks: an end that may be the beginning of a secret is held back.

At most `hold` characters are held back; of a longer secret, the placeholder is shown, and the text
after its end.
"""

from __future__ import annotations

from collections.abc import Callable

import attrs

from proxies.shared.secrets.finder import SecretFinder
from proxies.shared.secrets.private_keys import end_of

__all__ = ["HeldTail"]


@attrs.define(eq=False)
class HeldTail:
    """The held-back end of one text that arrives in chunks."""

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


def _after_word(text: str) -> str | None:
    """Return the text from its first white space on; `None` if it has none."""
    return next((text[at:] for at, each in enumerate(text) if each.isspace()), None)
