"""Lines of a client, by which a server that is about to end sees whose turns are still running.

In version 1 a turn is as long as its prompt is open. In version 2 a prompt is answered at once, and
the agent says when a turn begins and ends.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final

import attrs
from msgspec import UNSET

from conductor.frames import members_of, read_message
from conductor.remote.lines import Lines
from conductor.server.shares import at_once
from conductor.session_ids import session_of

__all__ = ["WatchedLines"]

_MARK: Final = b"state_update"
_MOST: Final = 1000
"""Sessions with a turn that are remembered."""


@attrs.define(eq=False)
class WatchedLines(Lines):
    """`running` are the sessions that have a turn, as far as the agent was heard (version 2)."""

    running: set[str] = attrs.field(factory=set)
    turn: Callable[[], Awaitable[None]] = at_once
    """Waits until the client may use the loop for more lines (`shares`)."""

    async def receive(self) -> list[bytes]:
        await self.turn()
        lines = await Lines.receive(self)
        for line in lines:
            if _MARK in line:
                self._note(line)
        return lines

    def _note(self, line: bytes) -> None:
        message = read_message(line)
        if message is None or message.params is UNSET:
            return
        session = session_of(message.params)
        try:
            update = members_of(members_of(message.params)["update"])
        except (KeyError, ValueError):
            return
        if session is None or update.get("sessionUpdate") != b'"state_update"':
            return
        if update.get("state") == b'"idle"':
            self.running.discard(session)
        elif len(self.running) < _MOST:  # it may wait for the person, who may answer in time
            self.running.add(session)
