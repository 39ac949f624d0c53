"""Parts of context in a prompt: how they are written, and how they are taken out again. Pure.

    <context source="AGENTS.md">
    Use tabs.
    </context>

Agents replay prompts, and some echo them, as the user's words, in chunks cut anywhere. A part is
recognised by its first line and ends at its closing tag; content that has this tag in it gets
another one (`context-2`), so content cannot end its own part early.
"""

from __future__ import annotations

import itertools
import re
from typing import Final

import attrs

__all__ = ["UserText", "part", "without_parts"]

_TAG: Final = "context"
_FIRST_LINE: Final = re.compile(rf'<({_TAG}(?:-\d+)?) source="[^"\n]*">\n')


def part(source: str, content: bytes, room: int) -> str:
    """A part with what of the content fits into `room` bytes."""
    note = "\n(cut off here: too large)" if len(content) > room else ""
    body = content[:room].decode(errors="replace" if not note else "ignore").strip("\n")
    tags = itertools.chain([_TAG], (f"{_TAG}-{number}" for number in itertools.count(2)))
    tag = next(tag for tag in tags if f"</{tag}>" not in body)
    name = source.replace('"', "'").replace("\n", " ")
    return f'<{tag} source="{name}">\n{body}{note}\n</{tag}>'


def without_parts(text: str) -> str | None:
    """The text behind the parts at its start; `None` if it ends before they do."""
    while found := _FIRST_LINE.match(text):
        closing = f"\n</{found[1]}>"
        end = text.find(closing, found.end() - 1)
        if end < 0:
            return None
        text = text[end + len(closing) :].lstrip("\n")
    begun = text.startswith(f"<{_TAG}") and "\n" not in text
    return None if begun or (text and f"<{_TAG}".startswith(text)) else text


@attrs.define
class UserText:
    """A user's message as it comes in chunks, without the parts of context at its start."""

    longest: int
    """Characters that are held back at most, while a part has not ended."""
    held: str = attrs.field(default="", init=False)
    _begun: bool = attrs.field(default=False, init=False)
    """The user's own words have begun."""
    _after_part: bool = attrs.field(default=False, init=False)

    def feed(self, text: str) -> str:
        """What can be shown now; nothing while a part has not ended."""
        if self._begun:
            return text
        whole = self.held + text
        if self._after_part and not self.held:
            whole = whole.lstrip("\n")
        shown = without_parts(whole)
        if shown is None and len(whole) > self.longest:
            shown = whole
        self.held = whole if shown is None else ""
        self._begun, self._after_part = bool(shown), self._after_part or shown == ""
        return shown or ""

    def end(self) -> str:
        """What was held back, now that the message has ended: it was no part."""
        shown, self.held, self._begun, self._after_part = self.held, "", False, False
        return shown
