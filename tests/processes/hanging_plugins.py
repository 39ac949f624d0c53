"""Plugins that hang, each in its own way, from the first prompt that says so."""

from __future__ import annotations

from typing import Literal

import attrs
import trio

from conductor.proxy import Agent, Proxy, on

How = Literal["before", "after", "stubborn", "on cancel", "on update"]


async def hang(*, stubborn: bool = False) -> None:
    with trio.CancelScope(shield=stubborn):
        await trio.sleep_forever()


def says(params: dict, word: str) -> bool:
    return any(word in block.get("text", "") for block in params["prompt"])


@attrs.define(eq=False)
class Hanging(Proxy):
    how: How

    @on("session/prompt")
    async def prompt(self, params: dict, forward):
        if says(params, "wait") and self.how in ("before", "stubborn"):
            await hang(stubborn=self.how == "stubborn")
        answer = await forward()
        if says(params, "wait") and self.how == "after":
            await hang()
        return answer

    @on("session/cancel")
    async def cancel(self, params: dict, forward):
        if self.how == "on cancel":
            await hang()
        await forward()

    @on("session/update")
    async def update(self, params: dict, forward):
        await forward()
        if self.how == "on update" and "waiting" in str(params):
            await hang()


@attrs.define(eq=False)
class HangingAgent(Agent):
    how: How

    @on("initialize")
    async def initialize(self, params: dict):
        return {"protocolVersion": 1, "agentCapabilities": {}, "authMethods": []}

    @on("session/new")
    async def new(self, params: dict):
        return {"sessionId": "s1"}

    @on("session/prompt")
    async def prompt(self, params: dict):
        if says(params, "wait"):
            await self.client.notify(
                "session/update",
                {
                    "sessionId": "s1",
                    "update": {
                        "sessionUpdate": "agent_message_chunk",
                        "content": {"type": "text", "text": "waiting"},
                    },
                },
            )
            self.release_lane()
            await hang(stubborn=self.how == "stubborn")
        return {"stopReason": "end_turn"}
