"""A native agent and a provider that speak different bindings, and different revisions."""

from __future__ import annotations

import pytest
import trio
from support.bridge_harness import situation
from support.mcp_providers import BINDINGS, SERVED, Waiting, asking_old, declaration

from conductor.errors import RequestError

ACP = {"mcpCapabilities": {"acp": True}}
META = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientCapabilities": {"elicitation": {"form": {}}},
    "io.modelcontextprotocol/clientInfo": {"name": "agent", "version": "1"},
}
HELLO = {
    "protocolVersion": "2025-06-18",
    "capabilities": {},
    "clientInfo": {"name": "agent", "version": "1"},
}
ADD = {"name": "add", "arguments": {"a": 2, "b": 3}}


@pytest.mark.parametrize(
    ("binding", "era", "key"),
    [
        (*each, key)
        for each in SERVED
        for key in ("serverId", "acpId")
        if each != (key, "new")  # they understand each other: see below
    ],
)
async def test_an_agent_that_connects_reaches_every_provider(binding, era, key):
    async with situation(binding, era=era, capabilities=ACP) as on:
        await on.declare()
        ask, tell = on.agent.endpoint.request, on.agent.endpoint.notify
        connected = await ask("mcp/connect", {key: "server-1"})
        hello = await ask("mcp/message", {**connected, "method": "initialize", "params": HELLO})
        tell("mcp/message", {**connected, "method": "notifications/initialized"})
        result = await ask("mcp/message", {**connected, "method": "tools/call", "params": ADD})
        assert await ask("mcp/disconnect", connected) == {}

    assert hello["protocolVersion"] == "2025-06-18"
    assert result["structuredContent"] == {"result": 5}


async def test_an_agent_and_a_provider_that_share_a_binding_are_left_alone():
    """Ordinary traffic: what the provider says to `initialize` is the agent's business."""
    async with situation("serverId", era="new", capabilities=ACP) as on:
        await on.declare()
        connected = await on.agent.endpoint.request("mcp/connect", {"serverId": "server-1"})
        message = {**connected, "method": "initialize", "params": HELLO}
        with pytest.raises(RequestError, match="Method not found"):
            await on.agent.endpoint.request("mcp/message", message)

    assert connected == {"connectionId": "connection-1"}
    assert on.provider.log[0] == ("mcp/connect", {"serverId": "server-1"})


@pytest.mark.parametrize(("binding", "era"), SERVED)
async def test_a_stateless_agent_reaches_every_provider(binding, era):
    async with situation(binding, era=era, capabilities=ACP) as on:
        await on.declare()
        carrier = {"serverId": "server-1", "requestId": "a", "method": "tools/call"}
        params = {**ADD, "_meta": META}
        outcome = await on.agent.endpoint.request("mcp/message", {**carrier, "params": params})

    assert outcome["result"]["structuredContent"] == {"result": 5}
    assert outcome["result"]["resultType"] == "complete"


@pytest.mark.parametrize("binding", BINDINGS)
async def test_progress_reaches_a_stateless_agent_under_its_own_request_id(binding):
    record_update = []
    handlers = {"mcp/message": record_update.append}
    async with situation(binding, capabilities=ACP, handlers=handlers) as on:
        await on.declare()
        carrier = {"serverId": "server-1", "requestId": "mine", "method": "tools/call"}
        meta = {**META, "progressToken": "t"}
        params = {"name": "count", "arguments": {"to": 2}, "_meta": meta}
        await on.agent.endpoint.request("mcp/message", {**carrier, "params": params})

    assert [(h["serverId"], h["requestId"], h["params"]["progress"]) for h in record_update] == [
        ("server-1", "mine", 1),
        ("server-1", "mine", 2),
    ]


async def test_an_old_server_asks_a_stateless_agent_by_its_answer():
    async with situation("serverId", asking_old, era="old", capabilities=ACP) as on:
        await on.declare()
        ask = on.agent.endpoint.request
        carrier = {"serverId": "server-1", "method": "tools/call"}
        params = {"name": "confirm", "arguments": {}, "_meta": META}
        first = await ask("mcp/message", {**carrier, "requestId": "1", "params": params})
        [(key, question)] = first["result"]["inputRequests"].items()
        more = {
            "inputResponses": {key: {"action": "accept", "content": {"ok": True}}},
            "requestState": first["result"]["requestState"],
        }
        second = await ask(
            "mcp/message", {**carrier, "requestId": "2", "params": {**params, **more}}
        )
        again = await ask(
            "mcp/message", {**carrier, "requestId": "3", "params": {**params, **more}}
        )

    assert first["result"]["resultType"] == "input_required"
    assert (question["method"], question["params"]["message"]) == ("elicitation/create", "Really?")
    assert second["result"]["content"][0]["text"] == "confirmed: {'ok': True}"
    assert again["error"]["message"] == "Unknown or used requestState"


@pytest.mark.parametrize("binding", BINDINGS)
async def test_a_cancelled_request_is_cancelled_behind_the_translation(binding):
    waiting = Waiting()
    async with situation(binding, waiting.server, capabilities=ACP) as on:
        await on.declare()
        carrier = {"serverId": "server-1", "requestId": "w", "method": "tools/call"}
        params = {"name": "wait", "arguments": {}, "_meta": META}
        async with trio.open_nursery() as nursery:
            nursery.start_soon(
                on.agent.endpoint.request, "mcp/message", {**carrier, "params": params}
            )
            await waiting.begun.wait()
            nursery.cancel_scope.cancel()
        with trio.fail_after(5):
            await waiting.cancelled.wait()


@pytest.mark.parametrize("binding", BINDINGS)
async def test_a_server_without_a_provider_is_a_clear_error(binding):
    async with situation(binding, capabilities=ACP) as on:
        await on.declare({**declaration(binding), "id": "ghost", "serverId": "ghost"})
        with pytest.raises(RequestError):
            await on.agent.endpoint.request("mcp/connect", {"serverId": "ghost"})


async def test_an_error_of_the_provider_is_the_answer_to_a_native_agent():
    """Only "method not found" means that the provider speaks another binding."""

    def refuse(params):
        raise RequestError(-32000, "the database is locked")

    async with situation("serverId", capabilities=ACP) as on:
        on.client.handlers["mcp/connect"] = refuse
        await on.declare()
        with pytest.raises(RequestError, match="the database is locked"):
            await on.agent.endpoint.request("mcp/connect", {"serverId": "server-1"})
        asked = [h.method for h in on.client.transcript if h.method.startswith("mcp/")]

    assert asked == ["mcp/connect"]
