"""Lines of a client, by which a server that is about to end sees whose turns are still running.

In version 1 a turn is as long as its prompt is open. In version 2 a prompt is answered at once, and
the agent says when a turn begins and ends.
"""

from __future__ import annotations

from typing import Final

import attrs
import msgspec

from conductor.frames import UNUSUAL
from conductor.remote.lines import Lines

__all__ = ["WatchedLines"]

_MARK: Final = b"state_update"
_MOST: Final = 1000
"""Sessions with a turn that are remembered."""


@attrs.define(eq=False)
class WatchedLines(Lines):
    """`running` are the sessions that have a turn, as far as the agent was heard (version 2)."""

    running: set[str] = attrs.field(factory=set)

    async def receive(self) -> list[bytes]:
        lines = await Lines.receive(self)
        for line in lines:
            if _MARK in line:
                self._note(line)
        return lines

    def _note(self, line: bytes) -> None:
        try:
            params = _decode(line).params
        except UNUSUAL:
            return
        if params.update.sessionUpdate != "state_update":
            return
        if params.update.state == "idle":
            self.running.discard(params.sessionId)
        elif len(self.running) < _MOST:  # it may wait for the person, who may answer in time
            self.running.add(params.sessionId)


class _Update(msgspec.Struct):
    sessionUpdate: str
    state: str | None = None


class _Params(msgspec.Struct):
    sessionId: str
    update: _Update


class _Notification(msgspec.Struct):
    params: _Params


_decode: Final = msgspec.json.Decoder(_Notification).decode
