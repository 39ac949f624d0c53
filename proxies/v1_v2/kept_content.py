"""Content of unfinished tool calls, for chunks that are appended to it. Pure.

An agent can append any number of items of any size, to any number of calls, in all sessions of a
chain. Content over the limits is forgotten: the oldest items of a call, then the calls that were
not changed for the longest time.
"""

from __future__ import annotations

from collections import deque
from typing import Any, Final

import attrs

from proxies.v1_v2.members import Json

__all__ = ["KeptContent"]

_MAX_CALL_BYTES: Final = 1024 * 1024
_MAX_BYTES: Final = 8 * 1024 * 1024
"""Limit for all calls together."""
_VALUE_BYTES: Final = 64
"""Bytes of a value besides its text."""


@attrs.define
class _KeptCallContent:
    items: deque[tuple[int, Json]] = attrs.field(factory=deque)
    """The oldest first, with their sizes."""
    size: int = 0


@attrs.define(eq=False)
class KeptContent:
    """The content of the calls of all sessions, in version 2. A session is any object."""

    size: int = attrs.field(default=0, init=False)
    _calls: dict[tuple[object, str], _KeptCallContent] = attrs.field(factory=dict, init=False)
    """The one that is longest unchanged first."""

    def items(self, session: object, call: str) -> list[Json]:
        content = self._calls.get((session, call))
        return [] if content is None else [item for _, item in content.items]

    def replace(self, session: object, call: str, items: list[Json]) -> None:
        self.drop(session, call)
        for item in items:
            self.append(session, call, item)

    def append(self, session: object, call: str, item: Json) -> None:
        content = self._calls.pop((session, call), None) or _KeptCallContent()
        self._calls[session, call] = content
        size = _size(item) + len(call)
        content.items.append((size, item))
        content.size += size
        self.size += size
        while content.size > _MAX_CALL_BYTES:
            oldest, _ = content.items.popleft()
            content.size -= oldest
            self.size -= oldest
        while self.size > _MAX_BYTES:
            self.drop(*next(iter(self._calls)))

    def drop(self, session: object, call: str) -> None:
        content = self._calls.pop((session, call), None)
        self.size -= 0 if content is None else content.size

    def calls(self, session: object) -> list[str]:
        """The calls of a session that have content."""
        return [call for owner, call in self._calls if owner is session]


def _size(value: Any) -> int:
    """Bytes that a JSON value takes in memory, roughly; it may be nested to any depth."""
    size, waiting = 0, [value]
    while waiting:
        one = waiting.pop()
        size += _VALUE_BYTES
        if isinstance(one, str):
            size += len(one)
        elif isinstance(one, dict):
            waiting += [*one.keys(), *one.values()]
        elif isinstance(one, list):
            waiting += one
    return size
