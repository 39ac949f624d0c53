"""ServerNames of MCP servers as the agent is given them. Pure.

A server keeps its declared name unless the name is taken: by another server of the same session
set-up, or, in an agent that keeps one server per name for all sessions, by another session.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

import attrs

__all__ = ["ServerNames"]


@attrs.define(eq=False)
class ServerNames:
    """ServerNames in use in one agent process. `apart`: whether sessions must not share names."""

    apart: bool = False
    _used: dict[str, int] = attrs.field(factory=dict, init=False)
    """How many servers have a name."""
    _next: dict[str, int] = attrs.field(factory=dict, init=False)
    """The next number to try for a declared name, so that the search does not begin at 2 again."""

    def choose(self, name: str, taken: Collection[str], own: str | None = None) -> str:
        """`tools`, else `tools-2`, `tools-3`: still recognised by users and models.

        `taken` are the other names of this set-up; `own`, the name that the same session's server
        was given before.
        """
        chosen = own or name
        while chosen in taken or (self.apart and chosen in self._used and chosen != own):
            number = self._next.get(name, 2)
            self._next[name] = number + 1
            chosen = f"{name}-{number}"
        self._used[chosen] = self._used.get(chosen, 0) + 1
        return chosen

    def is_used(self, name: str) -> bool:
        return name in self._used

    def free(self, names: Iterable[str]) -> None:
        """Servers with these names are gone from the agent."""
        for name in names:
            count = self._used.get(name, 0) - 1
            if count > 0:
                self._used[name] = count
            elif self._used.pop(name, None) is not None and not self._used:
                self._next.clear()
