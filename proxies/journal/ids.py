"""Two ids of a session: that of the client, and that of the agent's session for it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import attrs

from conductor.error_codes import INTERNAL_ERROR
from conductor.proxy import Forward, Proxy, RequestError, on
from conductor.setting_forms import Kind, state_after
from proxies.journal.session import JournalSession

__all__ = ["SessionIds"]

_KINDS: Final[Mapping[str, Kind]] = {"modeId": "mode", "modelId": "model", "value": "option"}
"""Kinds of settings, by the member of the params that has the value."""


@attrs.define
class SessionIds(Proxy):
    """Give each side the id that it knows; for messages that need nothing else."""

    _open: dict[str, JournalSession] = attrs.field(factory=dict, init=False)
    _by_agent: dict[str, JournalSession] = attrs.field(factory=dict, init=False)
    """By the id of the agent's session."""

    @on("session/cancel")
    @on("session/status")
    @on("session/set_title")
    @on("session/archive")
    @on("session/unarchive")
    async def to_agent(self, params: dict[str, Any], forward: Forward) -> Any:
        self._with_agent_id(params)
        return await forward()

    @on("session/set_mode")
    @on("session/set_model", source="client")
    @on("session/set_config_option")
    async def change_setting(self, params: dict[str, Any], forward: Forward) -> Any:
        session = self._with_agent_id(params)
        result = await forward()
        if session is not None:
            name = next((each for each in _KINDS if each in params), "value")
            told = result if isinstance(result, dict) else {}
            session.opened = state_after(session.opened, _KINDS[name], params.get(name), told)
        return result

    @on("session/request_permission")
    @on("elicitation/create")
    @on("fs/read_text_file")
    @on("fs/write_text_file")
    @on("terminal/create")
    @on("terminal/output")
    @on("terminal/release")
    @on("terminal/wait_for_exit")
    @on("terminal/kill")
    async def to_client(self, params: dict[str, Any], forward: Forward) -> Any:
        if session := self._by_agent.get(str(params.get("sessionId"))):
            params["sessionId"] = session.id
        return await forward()

    def _forget(self, id: str) -> None:
        if session := self._open.pop(id, None):
            self._forget_agent_id(session)

    def _forget_agent_id(self, session: JournalSession) -> None:
        """Forget the agent's id of a session that has ended, once no turn of it runs."""
        if self._open.get(session.id) is session or session.running:
            return
        if self._by_agent.get(session.agent_id) is session:
            del self._by_agent[session.agent_id]

    def _with_agent_id(self, params: dict[str, Any]) -> JournalSession | None:
        """The session of a message of the client, which gets the agent's id of it."""
        id = str(params.get("sessionId"))
        session = self._open.get(id)
        if session is not None and session.is_lost:
            message = "journal: the agent was restarted and has lost this session; "
            message += "start a new one, or load it"
            raise RequestError(INTERNAL_ERROR, message, {"sessionId": id})
        if session is not None:
            params["sessionId"] = session.agent_id
        return session
