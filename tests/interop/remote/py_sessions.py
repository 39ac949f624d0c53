"""A client on the Python SDK with several sessions at once; ts_sessions.mjs is its twin.

    py_sessions.py URL

Two sessions are asked for permission at the same time, and one is answered only when both were. One
is cancelled while the other goes on, and closed; not before it says that it waits, since over HTTP
a cancellation may overtake the prompt. A second connection loads the other.
It prints what came of it, by session.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Coroutine
from typing import Any

import acp
from acp import schema
from acp.http import create_http_stream
from acp.ws import create_websocket_stream

CHOICES = {"Alpha": "allow", "Beta": "reject"}


class Client:
    def __init__(self) -> None:
        self.told: dict[str, list[str]] = {}
        self.asked: set[str] = set()
        self.both_asked = asyncio.Event()
        self.waits = asyncio.Event()

    def on_connect(self, conn: acp.Agent) -> None:
        pass

    async def session_update(self, session_id: str, update: Any, **_: Any) -> None:
        match update.session_update:
            case "user_message_chunk" | "agent_message_chunk":
                kind = update.session_update.partition("_")[0]
                self.told.setdefault(session_id, []).append(f"{kind}: {update.content.text}")
                if update.content.text == "waiting":
                    self.waits.set()

    async def request_permission(
        self, session_id: str, tool_call: Any, options: list[Any], **_: Any
    ) -> acp.RequestPermissionResponse:
        self.asked.add(tool_call.title)
        if len(self.asked) == len(CHOICES):
            self.both_asked.set()
        await self.both_asked.wait()
        choice = CHOICES[tool_call.title]
        outcome = schema.AllowedOutcome(outcome="selected", option_id=choice)
        return acp.RequestPermissionResponse(outcome=outcome)


async def connect(client: Client, url: str) -> acp.Agent:
    over_http = url.startswith("http")
    transport = create_http_stream(url) if over_http else await create_websocket_stream(url)
    agent = acp.connect_to_agent(client, transport)
    await agent.initialize(1, schema.ClientCapabilities())
    return agent


async def main(url: str) -> dict[str, Any]:
    client, stops = Client(), dict[str, list[str]]()
    async with await connect(client, url) as agent:
        first, second = [(await agent.new_session("/tmp")).session_id for _ in range(2)]

        async def prompt(session: str, text: str) -> None:
            answer = await agent.prompt(session, [acp.text_block(text)])
            stops.setdefault(session, []).append(answer.stop_reason)

        await gather(prompt(first, "ask Alpha"), prompt(second, "ask Beta"))
        waiting = asyncio.ensure_future(prompt(first, "say waiting\nwait"))
        await prompt(second, "stream 3 4")
        await client.waits.wait()
        await agent.cancel(first)
        await waiting
        await agent.close_session(first)
    again = Client()
    async with await connect(again, url) as agent:
        await agent.load_session("/tmp", second)
        await prompt_again(agent, second)
    named = {first: "first", second: "second"}
    return {
        "told": {named[session]: texts for session, texts in client.told.items()},
        "stops": {named[session]: reasons for session, reasons in stops.items()},
        "loaded": again.told[second],
    }


async def prompt_again(agent: acp.Agent, session: str) -> None:
    await agent.prompt(session, [acp.text_block("say once more")])


async def gather(*them: Coroutine[Any, Any, None]) -> None:
    await asyncio.gather(*them)


if __name__ == "__main__":
    print(json.dumps(asyncio.run(main(sys.argv[1]))))
