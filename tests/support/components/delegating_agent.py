"""An agent that gives work to a subagent, in a session of its own (RFD subagent sessions).

It keeps sessions in files, those of its subagents beside the others. A prompt starts a subagent,
which reads a file: a tool call, a permission request and a text of the session `SESSION.child`. The
answer of the permission request is what the agent says in the end.
"""

from __future__ import annotations

from typing import Any

import attrs
from support.components.durable_agent import KeepingAgent

from conductor.proxy import on

__all__ = ["DelegatingAgent"]

_OPTIONS = [
    {"optionId": "yes", "name": "Allow", "kind": "allow_once"},
    {"optionId": "no", "name": "Reject", "kind": "reject_once"},
]


@attrs.define(eq=False)
class DelegatingAgent(KeepingAgent):
    tells_state: bool = True
    """Whether it reports when the subagent is at work, and when it is idle."""
    announces: bool = True
    """Whether it says of a subagent that it is one, and asks in its session; else there are only
    updates of the session."""

    @on("session/prompt")
    async def prompt(self, params: dict[str, Any]) -> dict[str, Any]:
        session = params["sessionId"]
        child = f"{session}.child"
        self._file(child).touch()
        if not self.announces:
            await self._say(child, "read")
            await self._say(session, "done")
            return {"stopReason": "end_turn"}
        announced = {"sessionUpdate": "subagent_update", "sessionId": child, "title": "Reader"}
        await self._tell(session, {**announced, **self.state("running")})
        call = {"toolCallId": "1", "title": "Read notes", "kind": "read"}
        await self._tell(child, {"sessionUpdate": "tool_call", **call})
        asked = {"sessionId": child, "toolCall": {"toolCallId": "1"}, "options": _OPTIONS}
        answer = await self.client.request("session/request_permission", asked)
        await self._say(child, "read")
        if state := self.state("idle"):
            ended = {"sessionUpdate": "subagent_update", "sessionId": child, **state}
            await self._tell(session, ended)
        await self._say(session, answer["outcome"].get("optionId", "cancelled"))
        return {"stopReason": "end_turn"}

    @on("session/delete")
    async def delete(self, params: dict[str, Any]) -> dict[str, Any]:
        self._file(params["sessionId"]).unlink()
        return {}

    def state(self, name: str) -> dict[str, Any]:
        return {"state": {"state": name}} if self.tells_state else {}

    async def _tell(self, session: str, update: dict[str, Any]) -> None:
        await self.client.notify("session/update", {"sessionId": session, "update": update})
