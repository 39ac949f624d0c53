"""Half an emoji, which JavaScript agents and clients send, over Streamable HTTP: everything that
routes a message reads what the frame codec reads."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import attrs
import pytest
import trio
from support.raw_json import compact
from support.remote_agents import reach
from support.server_clients import PATIENCE, Remote, http, initialize, request

from conductor.chain.chain import Chain
from conductor.chain.components import ChainSpec
from conductor.plugins.plugin_component import PluginComponent
from conductor.proxy import Agent, on
from conductor.routing.component import Component
from conductor.server.access import AccessPolicy
from conductor.server.http.parse_request import parse_post
from conductor.server.listen.address import TcpAddress
from conductor.server.run import RunningServer, ServerSettings, open_server
from conductor.transport.base import Transport

HALF = "\ud83d"


@attrs.define(eq=False)
class Halves(Agent):
    """Puts a lone surrogate into each of its messages."""

    @on("initialize")
    async def initialize(self, params: dict[str, Any]) -> dict[str, Any]:
        capabilities = {"loadSession": True, "_meta": {"x": HALF}}
        return {"protocolVersion": 1, "agentCapabilities": capabilities, "_meta": {"x": HALF}}

    @on("session/new")
    async def new(self, params: dict[str, Any]) -> dict[str, Any]:
        return {"sessionId": "s", "_meta": {"x": HALF}}

    @on("session/load")
    async def load(self, params: dict[str, Any]) -> dict[str, Any]:
        await self._say("s")
        return {"_meta": {"x": HALF}}

    @on("session/prompt")
    async def prompt(self, params: dict[str, Any]) -> dict[str, Any]:
        await self._say(params["sessionId"])
        answer = await self.client.request("_x/ask", {"sessionId": "s", "_meta": HALF})
        return {"stopReason": "end_turn", "_meta": {"x": HALF, "answer": answer}}

    @on("session/close")
    async def close(self, params: dict[str, Any]) -> dict[str, Any]:
        return {"_meta": {"x": HALF}}

    async def _say(self, session: str) -> None:
        content = {"type": "text", "text": HALF}
        update = {"sessionUpdate": "agent_message_chunk", "content": content}
        await self.client.notify("session/update", {"sessionId": session, "update": update})


@asynccontextmanager
async def halves() -> AsyncIterator[RunningServer]:
    def make_chain(transport: Transport) -> Chain:
        def make() -> list[Component]:
            return [PluginComponent("agent", Halves(), "agent")]

        return Chain(transport, ChainSpec(make))

    settings = ServerSettings((TcpAddress("127.0.0.1", 0),), AccessPolicy())
    with trio.fail_after(3 * PATIENCE):
        async with open_server(make_chain, settings) as server:
            yield server


async def test_initialize_is_answered_with_the_connections_id():
    async with halves() as server, http(server) as client:
        hello = compact({**initialize(), "_meta": HALF})
        json_type = {"content-type": "application/json"}
        response = await client.post("/acp", content=hello, headers=json_type)
        remote = Remote(client, response.headers["acp-connection-id"], lambda: http(server))
        status = await remote.get("s")

    result = json.loads(response.text)["result"]
    assert result["connectionId"] == response.headers["acp-connection-id"]
    assert result["_meta"] == {"x": HALF}
    assert status == 200  # it says that it can load sessions


@pytest.mark.parametrize("by_header", [True, False])
async def test_a_prompt_is_accepted_and_its_updates_arrive_on_its_stream(by_header):
    async with halves() as server, http(server) as client:
        remote = await Remote.open(server, client)
        assert await remote.new_session() == "s"
        named = {} if by_header else {"sessionId": "s"}
        block = {"type": "text", "text": HALF}
        prompt = request(2, "session/prompt", prompt=[block], **named)
        async with remote.stream("s") as messages:
            accepted = await remote.post(prompt, "s")
            update, question = await messages.receive(), await messages.receive()
            answer = {"jsonrpc": "2.0", "id": question["id"], "result": {"half": HALF}}
            await remote.post(answer, "s")
            answered = await messages.receive()

    assert accepted.status_code == 202
    assert update["params"]["update"]["content"]["text"] == HALF
    assert answered["result"]["_meta"] == {"x": HALF, "answer": {"half": HALF}}


async def test_a_session_that_is_set_up_is_answered_on_the_connections_stream():
    async with halves() as server, http(server) as client:
        remote = await Remote.open(server, client)
        async with remote.stream() as connection, remote.stream("s") as session:
            params = {"sessionId": "s", "cwd": "/", "mcpServers": [], "_meta": {"x": HALF}}
            await remote.post(request(2, "session/load", **params), "s")
            answer, update = await connection.receive(), await session.receive()

    assert answer["result"] == {"_meta": {"x": HALF}}
    assert update["method"] == "session/update"


async def test_the_conductors_client_opens_session_streams():
    async with halves() as server, reach(connect=server.addresses[0]) as client:
        client.handlers["_x/ask"] = _answer
        await client.initialize()
        session = await client.new_session("/tmp")
        answer = await client.prompt(session, "hello")
        await client.request("session/close", {"sessionId": session})
        text = client.transcript.text(session)

    assert answer["stopReason"] == "end_turn"
    assert text == HALF


async def _answer(params: Any) -> Any:
    return {}


def test_an_inserted_session_id_changes_no_other_bytes_of_the_params():
    body = rb'{"jsonrpc":"2.0","method":"session/cancel","params":{"\ud83d": "\udc00", "n": 1.50}}'
    posted = parse_post({"acp-session-id": "s"}, body)

    assert (
        posted.line == rb'{"jsonrpc":"2.0","method":"session/cancel",'
        rb'"params":{"\ud83d": "\udc00", "n": 1.50,"sessionId":"s"}}'
    )
