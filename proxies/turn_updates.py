"""`turn_updates`: keeps what an agent sends between turns until the next turn.

An agent may send messages and tool calls while no turn runs, for example of work in the background.
Some clients show them as errors, lose them, or show them in the wrong place. This proxy keeps them
until the client's next prompt, and sends them at the beginning of its turn, in their order. What
belongs to no turn (commands, modes, options, title, usage, notices) passes at once, and so does the
history that a session is loaded with, and more than 1 MB of a session.

What is kept of a session that ends is dropped, with a line in the log; so is what is kept of a
session that is loaded: its history has it. A restart of the agent changes nothing.

For protocol version 1; version 2 has no turns in this sense.

Options:
    questions  permission requests and elicitations between turns wait for the next turn, too, for
               a client that neither shows nor answers them; default false: they pass at once,
               before what is kept. The conductor sets it for clients known for it
"""

from __future__ import annotations

from collections import deque
from typing import Any, Final

import attrs
import msgspec
import trio

from conductor.json_values import decode_loosely, decode_value
from conductor.proxy import (
    Forward,
    Proxy,
    Session,
    SessionSetup,
    get_logger,
    on,
    on_cancel,
    on_session_end,
    on_session_setup,
    per_session,
)
from conductor.proxy.peers import SESSION_STATE_UPDATES

__all__ = ["TurnUpdates"]

_MAX_BYTES: Final = 1_000_000
"""Of a session; with more, all is sent at once."""
_FREE: Final = SESSION_STATE_UPDATES | {"notice"}
"""Kinds of updates that belong to no turn."""

log: Final = get_logger(component="turn_updates")


class _Params(msgspec.Struct):
    sessionId: str | None = None
    """`None`: an elicitation of a request, such as a login."""


@attrs.define(eq=False)
class _Kept:
    """The state of one session of the user, with those of its subagents."""

    running_turns: int = 0
    """Prompts that are not answered."""
    loads: int = 0
    """Requests that load or resume the session and are not answered."""
    updates: deque[bytes] = attrs.field(factory=deque)
    size: int = 0
    turn_begins: trio.Event = attrs.field(factory=trio.Event)
    """Set when a turn begins, or the questions that wait for it are cancelled."""

    def cancel_questions(self) -> None:
        self.turn_begins.set()
        self.turn_begins = trio.Event()


@attrs.define
class TurnUpdates(Proxy):
    """Keep what an agent sends between turns until the next turn."""

    versions = (1,)
    on_error = "pass"

    questions: bool = False

    kept = per_session(_Kept)

    @on("session/update")
    async def update(self, raw: bytes, forward: Forward) -> None:
        params = decode_loosely(raw)
        session = self.session_by_id(params["sessionId"]).user_session
        kept = self.kept[session.id]
        is_free = params["update"].get("sessionUpdate") in _FREE or kept.loads
        if is_free or (kept.running_turns and not kept.updates):
            await forward()
            return
        kept.updates.append(raw)
        kept.size += len(raw)
        if kept.size > _MAX_BYTES:
            log.warning("updates sent between turns: too many", session=session.id)
            await self._send(kept)

    @on("session/prompt")
    async def prompt(self, raw: bytes, forward: Forward) -> Any:
        id = decode_value(raw, type=_Params).sessionId
        kept = self.kept[self.session_by_id(str(id)).user_session.id]
        kept.running_turns += 1
        try:
            await self._send(kept)
            kept.turn_begins.set()
            return await forward()
        finally:
            kept.running_turns -= 1
            if not kept.running_turns and kept.turn_begins.is_set():
                kept.turn_begins = trio.Event()

    @on("session/request_permission")
    async def ask(self, raw: bytes, forward: Forward) -> Any:
        is_asked = await self._next_turn(raw)
        return await forward() if is_asked else {"outcome": {"outcome": "cancelled"}}

    @on("elicitation/create")
    async def ask_with_form(self, raw: bytes, forward: Forward) -> Any:
        is_asked = await self._next_turn(raw)
        return await forward() if is_asked else {"action": "cancel"}

    @on_session_setup
    async def set_up(self, setup: SessionSetup, forward: Forward) -> Any:
        if setup.session_id is None or setup.opened_by not in ("load", "resume"):
            return await forward()
        kept = self.kept[setup.session_id]
        kept.loads += 1
        try:
            answered = await forward()
        finally:
            kept.loads -= 1
        if setup.opened_by == "load":
            self._drop(setup.session_id, kept, "the history has them")
        return answered

    @on_session_end
    async def ended(self, session: Session) -> None:
        if session.id in self.kept:
            kept = self.kept[session.id]
            self._drop(session.id, kept, "the session has ended")
            kept.cancel_questions()

    @on_cancel
    async def cancelled(self, session: Session) -> None:
        kept = self.kept[session.id]
        if not kept.running_turns:
            kept.cancel_questions()

    # ----------------------------------------------------------------------------------------------

    async def _next_turn(self, question: bytes) -> bool:
        """Wait for a turn of the session, unless one runs or questions pass at once; returns
        whether they are still to be asked."""
        id = decode_value(question, type=_Params).sessionId
        if not self.questions or id is None:
            return True
        kept = self.kept[self.session_by_id(id).user_session.id]
        if kept.turn_begins.is_set():
            return True
        self.release_lane()
        await kept.turn_begins.wait()
        return kept.running_turns > 0

    async def _send(self, kept: _Kept) -> None:
        """Send all, also what is appended meanwhile."""
        while kept.updates:
            raw = kept.updates.popleft()
            kept.size -= len(raw)
            await self.client.notify("session/update", raw)

    def _drop(self, session_id: str, kept: _Kept, reason: str) -> None:
        if kept.updates:
            dropped = len(kept.updates)
            log.warning("updates dropped", session=session_id, updates=dropped, reason=reason)
        kept.updates.clear()
        kept.size = 0
