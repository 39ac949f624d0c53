"""Line channel of a client that tracks running turns, for draining.

In protocol version 1 a turn lasts as long as its prompt request. In version 2 a prompt is answered
immediately, and the agent reports the state of the turn by `state_update`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import attrs
import msgspec
from msgspec import UNSET

from conductor.acp import MAX_AGENTS_ID, session_id_of
from conductor.json_values import decode_value
from conductor.jsonrpc.codec import decode_message
from conductor.jsonrpc.json_object import object_members
from conductor.network.line_channel import LineChannel

__all__ = ["TurnTrackingChannel"]

_STATE_UPDATE: Final = b"state_update"
_MAX_SESSIONS: Final = 1000
"""Maximum number of sessions with a running turn."""


@attrs.define(eq=False)
class TurnTrackingChannel(LineChannel):
    """`running`: sessions with a running turn (version 2), as reported by the agent."""

    running: set[str] = attrs.field(factory=set)
    turn_ended: Callable[[str | None], None] = lambda reason: None
    """Called when a running turn has ended, with the stop reason if the agent sent one."""

    async def receive(self) -> list[bytes]:
        lines = await LineChannel.receive(self)
        for line in lines:
            if _STATE_UPDATE in line:
                self._note(line)
        return lines

    def _note(self, line: bytes) -> None:
        message = decode_message(line)
        if message is None or message.params is UNSET:
            return
        session = session_id_of(message.params)
        try:
            update = object_members(object_members(message.params)["update"])
        except (KeyError, ValueError):
            return
        if session is None or update.get("sessionUpdate") != b'"state_update"':
            return
        if update.get("state") == b'"idle"':
            if session in self.running:  # else it is a repetition
                self.running.discard(session)
                self.turn_ended(_text(update.get("stopReason")))
        elif len(self.running) < _MAX_SESSIONS and len(session) <= MAX_AGENTS_ID:
            # `requires_action` counts: the answer may come in time
            self.running.add(session)


def _text(raw: bytes | None) -> str | None:
    """A string in raw JSON; `None` for anything else."""
    try:
        value = decode_value(raw or b"null")
    except (msgspec.MsgspecError, ValueError):
        return None
    return value if isinstance(value, str) else None
