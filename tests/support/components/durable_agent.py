"""An agent that keeps its sessions in files, so that another process can load them.

It answers a prompt with where it runs and what the session has been told so far; `flood SIZE TIMES`
with much of nothing, `wait` once it is cancelled.
`_meta.id` of `session/new` is the new session's id.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any
from uuid import uuid4

import attrs
import trio

from conductor.proxy import Agent, RequestError, on


@attrs.define(eq=False)
class KeepingAgent(Agent):
    directory: str
    node: str
    sent: int = attrs.field(default=0, init=False)
    _stop: trio.Event = attrs.field(factory=trio.Event, init=False)

    @on("initialize")
    async def initialize(self, params: dict[str, Any]) -> dict[str, Any]:
        return {
            "protocolVersion": 1,
            "agentCapabilities": {"loadSession": True, "sessionCapabilities": {"resume": {}}},
        }

    @on("session/new")
    async def new(self, params: dict[str, Any]) -> dict[str, Any]:
        session = params.get("_meta", {}).get("id") or str(uuid4())
        self._file(session).touch()
        return {"sessionId": session}

    @on("session/list")
    async def list(self, params: dict[str, Any]) -> dict[str, Any]:
        names = sorted(os.listdir(self.directory))
        return {"sessions": [{"sessionId": name, "cwd": "/"} for name in names]}

    @on("session/load")
    @on("session/resume")
    async def load(self, params: dict[str, Any]) -> dict[str, Any]:
        if not self._file(params["sessionId"]).exists():
            raise RequestError(-32002, "no such session")
        return {}

    @on("session/prompt")
    async def prompt(self, params: dict[str, Any]) -> dict[str, Any]:
        session, text = params["sessionId"], params["prompt"][-1]["text"]
        if text.startswith("flood "):
            size, times = map(int, text.split()[1:])
            for _ in range(times):
                await trio.lowlevel.checkpoint()
                await self.wait_room()
                await self._say(session, "x" * size)
                self.sent += 1
            return {"stopReason": "end_turn"}
        if text == "wait":
            self.release_lane()
            await self._stop.wait()
        file = self._file(session)
        told = file.read_text() + text
        file.write_text(told + " ")
        await self._say(session, f"{self.node}: {told}")
        return {"stopReason": "end_turn"}

    @on("session/cancel")
    async def cancel(self, params: dict[str, Any]) -> None:
        self._stop.set()

    async def _say(self, session: str, text: str) -> None:
        content = {"type": "text", "text": text}
        update = {"sessionUpdate": "agent_message_chunk", "content": content}
        await self.client.notify("session/update", {"sessionId": session, "update": update})

    def _file(self, session: str) -> Path:
        return Path(self.directory) / session
