"""Names of MCP servers, as given to the agent. Pure.

A server keeps its declared name unless the name is taken: by another server of the same session
set-up, or, in an agent that keeps one server per name for all sessions, by another session.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

import attrs

__all__ = ["ServerNames"]


@attrs.define(eq=False)
class ServerNames:
    """Server names in use in one agent process. `apart`: whether sessions must not share names."""

    apart: bool = False
    _used: dict[str, int] = attrs.field(factory=dict, init=False)
    """Number of servers by name."""
    _next: dict[str, int] = attrs.field(factory=dict, init=False)
    """The next number to try for a declared name, so that the search does not restart at 2."""

    def choose(self, name: str, taken: Collection[str], own: str | None = None) -> str:
        """Return a free name: `tools`, else `tools-2`, `tools-3`, which users and models recognise.

        `taken` are the other names in this set-up; `own` is the name that this server had in an
        earlier set-up of the session.
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
        """Release the names of removed servers."""
        for name in names:
            count = self._used.get(name, 0) - 1
            if count > 0:
                self._used[name] = count
            elif self._used.pop(name, None) is not None and not self._used:
                self._next.clear()
