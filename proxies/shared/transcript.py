"""A bounded transcript of a session, as text for an agent that has not seen it."""

from __future__ import annotations

from collections import deque
from typing import Literal

import attrs

__all__ = ["BoundedTranscript"]


@attrs.define
class BoundedTranscript:
    """Texts of user and agent, the newest `limit` characters."""

    limit: int = 40_000
    is_cut: bool = False
    """Whether older messages are left out."""
    _entries: deque[tuple[str, str]] = attrs.field(factory=deque, init=False)
    """Role and text; neighbours of the same role are pieces of one message."""
    _size: int = attrs.field(default=0, init=False)

    def add(self, role: Literal["user", "agent"], text: str) -> None:
        """Add a message, or the next piece of the last one."""
        if text:
            self._entries.append((role, text))
            self._size += len(text)
        while self._size > self.limit:
            self.is_cut = True
            oldest_role, oldest = self._entries.popleft()
            excess = self._size - self.limit
            self._size -= min(excess, len(oldest))
            if len(oldest) > excess:
                self._entries.appendleft((oldest_role, oldest[excess:]))

    def clear(self) -> None:
        """Forget all messages."""
        self._entries.clear()
        self._size, self.is_cut = 0, False

    def __str__(self) -> str:
        """The messages below each other; empty if there is none."""
        lines = ["[older messages are left out]"] if self.is_cut else []
        last = None
        for role, text in self._entries:
            if role == last:
                lines[-1] += text
            else:
                lines.append(f"{role}: {text}")
            last = role
        return "\n\n".join(lines)
