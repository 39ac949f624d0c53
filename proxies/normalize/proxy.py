"""`normalize`: repairs known protocol errors of agents and clients.

The repairs depend on the names and versions in `clientInfo` and `agentInfo`; `quirks.yaml` is the
table.

    early_updates            updates of a session that precede the response to session/new, from
                             which the client learns of the session, are sent after it
    loose_set_ups            MCP servers that are declared as in the settings of other programs (an
                             object by name, `env` or `headers` as an object, other types), absent
                             lists and relative directories become what the protocol says
    protocol_version_text    `protocolVersion` as a text becomes a number
    echoed_protocol_version  an agent that accepts any version speaks version 1
    missing_tool_call_id     tool calls without an id get one; an update without one is about the
                             last such call
    unannounced_tool_calls   the tool call of a permission request is announced first
    unfinished_tool_calls    tool calls that are pending or in progress when their turn ends become
                             failed, those of a cancelled turn of version 2 cancelled
    one_turn_at_a_time       a prompt waits until the session's turn has ended (version 1)

Options:
    add   repairs that are always made
    skip  repairs that are never made
"""

from __future__ import annotations

import itertools
import os
from collections import deque
from collections.abc import Iterator
from typing import Any, Final

import attrs
import trio

from conductor.bounded_dict import BoundedDict
from conductor.errors import details_are_withheld
from conductor.json_values import decode_loosely
from conductor.proxy import (
    Forward,
    PermissionQuestion,
    Prompt,
    Proxy,
    Session,
    SessionSetup,
    TurnEnd,
    on,
    on_permission,
    on_prompt,
    on_session_setup,
    on_turn_end,
    on_update,
    per_session,
)
from proxies.normalize import quirks
from proxies.normalize.quirks import Quirk, quirks_of
from proxies.normalize.set_ups import repair_set_up

__all__ = ["Normalize"]

_MAX_CALLS: Final = 1000
"""Ids of announced tool calls of a session that are remembered; the oldest are forgotten."""


@attrs.define
class _NormalizedSession:
    turn: trio.StrictFIFOLock = attrs.field(factory=trio.StrictFIFOLock)
    last_id: str = ""
    """Generated id of the last tool call without one."""
    calls: BoundedDict[str, None] = attrs.field(factory=lambda: BoundedDict(_MAX_CALLS))
    """Ids of announced tool calls."""


@attrs.define
class Normalize(Proxy):
    """Repair known quirks of agents and clients."""

    on_error = "pass"

    add: list[Quirk] = attrs.field(factory=list)
    skip: list[Quirk] = attrs.field(factory=list)
    _active: set[str] = attrs.field(factory=set, init=False)
    _opening: int = attrs.field(default=0, init=False)
    """Number of session/new and session/fork requests in flight."""
    _held_updates: dict[str, deque[bytes]] = attrs.field(factory=dict, init=False)
    """Updates that wait until the client knows their session."""
    _ids: Iterator[int] = attrs.field(factory=lambda: itertools.count(1), init=False)

    sessions = per_session(_NormalizedSession)

    @on("initialize")
    async def initialize(self, params: dict[str, Any], forward: Forward) -> Any:
        table = quirks.load()
        client = quirks_of(table["clients"], params.get("clientInfo") or params.get("info"))
        self._activate(client)
        result = await forward(self._with_number(params))
        agent = quirks_of(table["agents"], result.get("agentInfo") or result.get("info"))
        self._activate(client | agent)
        result = self._with_number(result)
        if "echoed_protocol_version" in self._active:
            result = {**result, "protocolVersion": 1}
        return result

    @on("session/new", "session/fork")
    async def open_session(self, params: dict[str, Any], forward: Forward) -> Any:
        self._opening += 1
        opened = ""
        try:
            result = await forward()
            opened = result["sessionId"]
            return result
        finally:
            self._opening -= 1
            for held in list(self._held_updates):
                if held == opened or not self._opening:
                    self.start_soon(self._send_held, held)  # runs after the response is sent

    @on_session_setup
    async def set_up(self, setup: SessionSetup, forward: Forward) -> Any:
        if "loose_set_ups" in self._active:
            repair_set_up(
                setup.params,
                self.protocol_version,
                required=setup.opened_by in ("new", "load"),
                cwd=None if details_are_withheld() else os.getcwd(),
            )
        return await forward()

    @on_update("tool_call", "tool_call_update")
    async def tool_call(self, session: Session, update: dict[str, Any], forward: Forward) -> None:
        known = self.sessions[session.id]
        if "missing_tool_call_id" in self._active and not update.get("toolCallId"):
            new = update["sessionUpdate"] == "tool_call" or not known.last_id
            update["toolCallId"] = self._new_id(known) if new else known.last_id
        known.calls[str(update.get("toolCallId"))] = None
        await forward()

    @on("session/update")
    async def update(self, raw: bytes, forward: Forward) -> None:
        if "early_updates" in self._active and (self._opening or self._held_updates):
            id = decode_loosely(raw)["sessionId"]
            if id in self._held_updates or self.session_by_id(id).opened_by is None:
                self._held_updates.setdefault(id, deque()).append(raw)
                return
        await forward()

    @on_permission
    async def permission(
        self, session: Session, asked: PermissionQuestion, forward: Forward
    ) -> Any:
        known, holder = self.sessions[session.id], asked.params.get("subject") or asked.params
        call = holder.get("toolCall")
        if not isinstance(call, dict):
            return await forward()
        if "missing_tool_call_id" in self._active and not call.get("toolCallId"):
            call["toolCallId"] = known.last_id or self._new_id(known)
        if "unannounced_tool_calls" in self._active and call["toolCallId"] not in known.calls:
            kind = "tool_call" if session.protocol_version == 1 else "tool_call_update"
            announcement = {"title": "Tool", "status": "pending", **call, "sessionUpdate": kind}
            await self.client.update(session.id, announcement)
            session.call_table.update(announcement)
            known.calls[call["toolCallId"]] = None
        return await forward()

    @on_prompt
    async def prompt(self, session: Session, prompt: Prompt, forward: Forward) -> Any:
        if "one_turn_at_a_time" not in self._active or session.protocol_version > 1:
            return await forward()
        turn = self.sessions[session.id].turn
        if turn.locked():
            await prompt.wait(turn.acquire)
        else:
            turn.acquire_nowait()
        try:
            return await forward()
        finally:
            turn.release()

    @on_turn_end
    async def turn_ended(self, session: Session, end: TurnEnd) -> None:
        if "unfinished_tool_calls" in self._active:
            for call in end.unfinished:
                update = {"sessionUpdate": "tool_call_update", "toolCallId": call.id}
                await self.client.update(session.id, {**update, "status": call.status})

    # ----------------------------------------------------------------------------------------------

    def _activate(self, names: set[str]) -> None:
        self._active = (names | {*self.add}) - {*self.skip}

    def _with_number(self, params: dict[str, Any]) -> dict[str, Any]:
        version = params.get("protocolVersion")
        if "protocol_version_text" in self._active and isinstance(version, str):
            digits = version.strip().partition(".")[0]
            if digits.isascii() and digits.isdigit():
                return {**params, "protocolVersion": int(digits)}
        return params

    async def _send_held(self, id: str) -> None:
        """Send held updates; those that arrive meanwhile are queued behind them, in order."""
        held = self._held_updates.get(id, deque())
        while held:
            await self.client.notify("session/update", held.popleft())
        self._held_updates.pop(id, None)

    def _new_id(self, session: _NormalizedSession) -> str:
        session.last_id = f"conductor-call-{next(self._ids)}"
        return session.last_id
