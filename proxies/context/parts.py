"""Format context parts for prompts, and remove them from echoed prompts. Pure.

    <context source="AGENTS.md">
    Use tabs.
    </context>

Agents replay prompts, and some echo them, as user messages in chunks of any size. A part is
recognised by its first line and ends at its closing tag; content that contains this tag gets
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
    """Return a part with as much of the content as fits into `room` bytes."""
    note = "\n(cut off here: too large)" if len(content) > room else ""
    body = content[:room].decode(errors="replace" if not note else "ignore").strip("\n")
    tags = itertools.chain([_TAG], (f"{_TAG}-{number}" for number in itertools.count(2)))
    tag = next(tag for tag in tags if f"</{tag}>" not in body)
    name = source.replace('"', "'").replace("\n", " ")
    return f'<{tag} source="{name}">\n{body}{note}\n</{tag}>'


def without_parts(text: str) -> str | None:
    """Return the text after the parts at its start; `None` if a part is not complete."""
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
    """Removes context parts from the start of a user message that arrives in chunks."""

    longest: int
    """Maximum characters held back while a part is not complete."""
    held: str = attrs.field(default="", init=False)
    _begun: bool = attrs.field(default=False, init=False)
    """Whether the user's own text has begun."""
    _after_part: bool = attrs.field(default=False, init=False)

    def feed(self, text: str) -> str:
        """Return the text that can be shown now; empty while a part is not complete."""
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
        """Return the held-back text at the end of the message: it was not a part."""
        shown, self.held, self._begun, self._after_part = self.held, "", False, False
        return shown
