"""What a server waits for before it ends a client: turns of version 2, whose prompt is answered
when they begin, and work in the background."""

from __future__ import annotations

import json
from contextlib import asynccontextmanager
from typing import Any

from support.raw_json import compact
from support.server_clients import (
    PATIENCE,
    ask,
    initialize,
    new_session,
    request,
    serving,
    websocket,
)

PLUGIN = """
import trio
from conductor.proxy import Agent, on


class Turns(Agent):
    @on("initialize")
    async def initialize(self, params: dict):
        return {"protocolVersion": 2, "capabilities": {}, "info": {"name": "t", "version": "1"}}

    @on("session/new")
    async def new(self, params: dict):
        return {"sessionId": "s"}

    @on("session/prompt")
    async def prompt(self, params: dict):
        await self._tell("running")
        return {"messageId": "m"}

    @on("session/set_config_option")
    async def set_option(self, params: dict):
        await self._tell("idle", background=params["value"])
        return {}

    @on("session/cancel")
    async def cancel(self, params: dict):
        await self._tell("idle", stopReason="cancelled")

    async def _tell(self, state, **more):
        update = {"sessionUpdate": "state_update", "state": state, **more}
        await self.client.notify("session/update", {"sessionId": "s", "update": update})
"""


@asynccontextmanager
async def turns_of_version_2(tmp_path, base="Agent"):
    """A server's client with a session and a running turn, its socket, and the reasons of ends."""
    (tmp_path / "turns.py").write_text(PLUGIN.replace("Agent", base))
    use = "{use: ./turns.py:Turns}"
    chain = f"agent: {use}" if base == "Agent" else f"proxies: [{use}]"
    async with (
        serving(tmp_path, chain=f"version: 1\n{chain}\n", timeouts={"drain": PATIENCE}) as server,
        websocket(server) as socket,
    ):
        hello = initialize()
        if base == "Proxy":
            hello["method"] = "proxy/initialize"
        hello["params"] = {"protocolVersion": 2, "capabilities": {}, "info": {}}
        await ask(socket, hello)
        await ask(socket, new_session(1))
        (client,) = server.clients.by_id.values()
        reasons: list[str | None] = []
        server.clients.turn_ended = reasons.append
        await socket.send_message(compact(request(2, "session/prompt", sessionId="s")))
        messages: list[Any] = [json.loads(await socket.get_message()) for _ in range(2)]
        assert any(message.get("id") == 2 for message in messages)
        yield client, socket, reasons


async def test_a_turn_of_version_2_is_not_cut_when_the_server_drains(tmp_path):
    async with turns_of_version_2(tmp_path) as (client, socket, reasons):
        busy, running = client.busy, client.running_turns
        await socket.send_message(compact(request(3, "session/cancel", sessionId="s")))
        await ask(socket, request(4, "session/list"))

        assert (busy, client.busy) == (True, False)
        assert (running, client.running_turns) == (1, 0)
        assert reasons == ["cancelled"]


async def test_work_in_the_background_is_not_cut_when_the_server_drains(tmp_path):
    async with turns_of_version_2(tmp_path) as (client, socket, reasons):
        for number, background in enumerate(([{"id": "b"}], []), 3):
            option = request(number, "session/set_config_option", sessionId="s", value=background)
            await ask(socket, option)
            assert (client.busy, client.running_turns) == (bool(background), 0)

        assert reasons == [None]  # once


async def test_turns_of_a_chain_of_proxies_are_known_too(tmp_path):
    """Its client is a parent conductor."""
    async with turns_of_version_2(tmp_path, base="Proxy") as (client, _, _):
        assert client.busy
