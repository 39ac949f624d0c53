"""`subagents`: shows the work of subagents in the session of the user, in a client that has no view
for it.

An agent may give each subagent a session of its own, to clients that announce `subagents` (RFD
subagent sessions); in version 2 it expects that of every client. To a client without that view, the
questions of such a session would be about one that it does not know. This proxy announces the
capability. A subagent becomes a tool call of the user's session, with its last message; its own
tool calls, questions, files and terminals are those of the user's session. When the client cancels
the turn, the subagents are cancelled, too. Plans, commands and usage of subagents are not shown. A
client that has the capability gets everything as it is.
"""

from __future__ import annotations

from typing import Any, Final

import attrs

from conductor.bounded_dict import BoundedDict
from conductor.proxy import Forward, Proxy, Session, on, on_update, per_session
from proxies.shared.capabilities import announce

__all__ = ["Subagents"]

_SHOWN: Final = ("tool_call", "tool_call_update")
_MESSAGES: Final = ("session_message", "session_message_chunk")
_RUNS: Final = ("running", "requires_action")
_MOST_TEXT: Final = 10_000
_MOST_SUBAGENTS: Final = 1000
"""Maximum for a session of the user; the oldest are forgotten."""


@attrs.define
class _Subagent:
    call: dict[str, Any]
    """The tool call that the client sees."""
    is_running: bool = False
    said: str = ""
    message: Any = None
    """Id of the message that `said` is of."""

    def hear(self, update: dict[str, Any]) -> None:
        """Keep the end of its last message."""
        content, message = update.get("content"), update.get("messageId")
        if isinstance(content, dict) and isinstance(text := content.get("text"), str):
            before = self.said if message == self.message else ""
            self.said, self.message = (before + text)[-_MOST_TEXT:], message


@attrs.define
class Subagents(Proxy):
    """Show the work of subagents in the session of the user."""

    versions = (1,)  # in version 2 every client knows sessions of subagents

    _is_needed: bool = attrs.field(default=False, init=False)

    known = per_session(lambda: BoundedDict[str, _Subagent](_MOST_SUBAGENTS))
    """The subagents of a session of the user, by their sessions."""

    @on("initialize")
    async def announce(self, request: dict[str, Any], forward: Forward) -> Any:
        self._is_needed = announce(request, {}, "subagents")
        return await forward()

    @on("session/load")
    async def load(self, params: dict[str, Any], forward: Forward) -> Any:
        """The client shows nothing of the session before its history."""
        self.known.pop(str(params.get("sessionId")), None)
        return await forward()

    @on_update("subagent_update")
    async def subagent(self, session: Session, update: dict[str, Any], forward: Forward) -> None:
        if not self._is_needed:
            await forward()
            return
        user, id = session.user_session, update.get("sessionId")
        if not isinstance(id, str):
            return
        if self.session_by_id(id).user_session is not user:
            return  # it belongs to the user, or to another session
        known = self.known[user.id]
        found = known.get(id)
        if found is None:
            found = known[id] = _Subagent({"toolCallId": f"subagent {id}"})
            first = {"title": "Subagent", "kind": "think", "status": "in_progress"}
            await self._show(user, found, {**first, **_members_of(found, update)}, "tool_call")
        elif changed := _members_of(found, update):
            await self._show(user, found, changed, "tool_call_update")

    @on("session/update")
    async def update(self, params: dict[str, Any], forward: Forward) -> None:
        update, kind = params.get("update"), None
        if isinstance(update, dict):
            kind = update.get("sessionUpdate")
        if not self._is_needed or not isinstance(update, dict) or kind == "subagent_update":
            await forward()
            return
        session = self.session_by_id(str(params.get("sessionId")))
        found = self.known[session.user_session.id].get(session.id)
        if found is not None and kind == "agent_message_chunk":
            found.hear(update)
        if kind in _SHOWN and isinstance(content := update.get("content"), list):
            update["content"] = [each for each in content if not _is_session(each)]
        if found is None:
            if kind not in _MESSAGES:
                await forward()
        elif kind in _SHOWN or kind == "notice":
            self._move(session, params, update)
            await forward()

    @on("session/request_permission")
    @on("elicitation/create")
    @on("fs/read_text_file", "fs/write_text_file", "terminal/create", "terminal/output")
    @on("terminal/wait_for_exit", "terminal/kill", "terminal/release")
    async def ask(self, params: dict[str, Any], forward: Forward) -> Any:
        if self._is_needed and isinstance(id := params.get("sessionId"), str):
            session, call = self.session_by_id(id), params.get("toolCall")
            if session.parent is not None:
                self._move(session, params, call if isinstance(call, dict) else params)
        return await forward()

    @on("session/cancel")
    async def cancel(self, params: dict[str, Any], forward: Forward) -> None:
        await forward()
        known = self.known[params["sessionId"]] if self._is_needed else {}
        for id, subagent in known.items():
            if subagent.is_running:
                await self.agent.notify("session/cancel", {"sessionId": id})

    def _move(self, session: Session, params: dict[str, Any], call: dict[str, Any]) -> None:
        """To the user's session, in which tool calls of several subagents have different ids."""
        params["sessionId"] = session.user_session.id
        if isinstance(id := call.get("toolCallId"), str):
            call["toolCallId"] = f"{session.id} {id}"

    async def _show(
        self, user: Session, subagent: _Subagent, changed: dict[str, Any], kind: str
    ) -> None:
        update = {"sessionUpdate": kind, **subagent.call, **changed}
        await self.client.update(user.id, update)


def _members_of(subagent: _Subagent, update: dict[str, Any]) -> dict[str, Any]:
    """Members of the tool call that an update about a subagent changes."""
    changed: dict[str, Any] = {}
    if isinstance(title := update.get("title"), str):
        changed["title"] = title
    state = update.get("state")
    if not isinstance(state, dict):
        return changed
    if state.get("state") in _RUNS:
        if not subagent.is_running:
            changed["status"] = "in_progress"
        subagent.is_running = True
    elif state.get("state") == "idle" and subagent.is_running:
        subagent.is_running = False
        ended = state.get("stopReason") in (None, "end_turn")
        changed["status"] = "completed" if ended else "failed"
        if subagent.said:
            text = {"type": "text", "text": subagent.said}
            changed["content"] = [{"type": "content", "content": text}]
            subagent.said = ""
    return changed


def _is_session(content: Any) -> bool:
    """Whether content of a tool call shows the session of a subagent."""
    return isinstance(content, dict) and content.get("type") == "session"
