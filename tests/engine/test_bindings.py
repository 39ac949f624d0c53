"""MCP over ACP: an agent and a provider of any two of the three bindings understand each other.

Both are played at the wire, and each knows its own binding only.
"""

from __future__ import annotations

import attrs
import pytest
import trio
import trio.lowlevel
from support.memory_chain import INITIALIZE, running_chain
from support.peers.wire import MemoryComponent, Peer
from support.plugins import plugin

from bridges.bridge import McpBridge

BINDINGS = ["serverId", "acpId", "stateless"]
REVISION = "io.modelcontextprotocol/protocolVersion"
META = {
    REVISION: "2026-07-28",
    "io.modelcontextprotocol/clientCapabilities": {},
    "io.modelcontextprotocol/clientInfo": {"name": "agent", "version": "1"},
}
HELLO = {
    "protocolVersion": "2025-06-18",
    "capabilities": {},
    "clientInfo": {"name": "agent", "version": "1"},
}
CALL = {"name": "add", "arguments": {"a": 2, "b": 3}}
SUM = [{"type": "text", "text": "5"}]


def declaration(binding):
    key = "id" if binding == "acpId" else "serverId"
    return {"type": "acp", "name": "tools", key: "server-1"}


@attrs.define(eq=False)
class Provider:
    """The client, which provides a server with one tool in one binding, to agents of any revision
    that the binding can carry."""

    client: Peer
    binding: str
    calls: list[dict] = attrs.field(factory=list)
    open: set[str] = attrs.field(factory=set)

    async def answer(self) -> None:
        """Answer what has come."""
        while came := [each for each in await self.client.receive_all() if "method" in each]:
            for request in came:
                if "id" in request:
                    self.client.send({"id": request["id"], **self.outcome(request)})

    def outcome(self, request):
        method, params = request["method"], request["params"]
        if self.binding == "stateless":
            if method != "mcp/message" or "requestId" not in params:
                return refusal(-32601, "Method not found")
            assert params["serverId"] == "server-1"
            assert params["params"]["_meta"][REVISION] == "2026-07-28"
            return {"result": self.inner(params)}
        if method == "mcp/connect" and params.get(self.binding) == "server-1":
            self.open.add("c-1")
            return {"result": {"connectionId": "c-1"}}
        if method == "mcp/disconnect" and params["connectionId"] in self.open:
            self.open.remove(params["connectionId"])
            return {"result": {}}
        if method == "mcp/message" and params.get("connectionId") in self.open:
            return self.inner(params)
        return refusal(-32602, "Invalid params")

    def inner(self, params):
        match params["method"]:
            case "initialize":
                capabilities = {"tools": {}}
                info = {"name": "adder", "version": "1"}
                revision = params["params"]["protocolVersion"]
                return {
                    "result": {
                        "protocolVersion": revision,
                        "capabilities": capabilities,
                        "serverInfo": info,
                    }
                }
            case "server/discover":
                return {
                    "result": {
                        "supportedVersions": ["2026-07-28"],
                        "capabilities": {"tools": {}},
                        "serverInfo": {"name": "adder", "version": "1"},
                    }
                }
            case "tools/call":
                self.calls.append(params["params"])
                return {"result": {"content": SUM, "isError": False}}
        return refusal(-32601, "Method not found")


def refusal(code, message):
    return {"error": {"code": code, "message": message}}


@attrs.define(eq=False)
class Consumer:
    """The agent."""

    agent: Peer
    provider: Provider
    number: int = 100

    async def ask(self, method, /, **params):
        self.number += 1
        self.agent.send({"id": self.number, "method": method, "params": params})
        # The bridge imports a translator in a thread, for which no virtual clock waits.
        with trio.fail_after(60):
            while not self.agent.lines:
                await self.provider.answer()
                await trio.lowlevel.checkpoint()
        (answer,) = await self.agent.receive_all()
        assert answer["id"] == self.number
        return answer["result"]


@pytest.mark.parametrize("provided", BINDINGS)
@pytest.mark.parametrize("consumed", BINDINGS)
async def test_an_agent_calls_a_tool_of_a_provider_with_another_binding(consumed, provided):
    make = [plugin("bridge", McpBridge("auto")), MemoryComponent("agent", "agent")]
    async with running_chain(make) as harness:
        await harness.send(INITIALIZE)
        capabilities = {"mcpCapabilities": {"acp": True}}
        answer = {"protocolVersion": 1, "agentCapabilities": capabilities, "authMethods": []}
        harness.agent.answer(await harness.agent.receive(), answer)
        await harness.client.receive()
        set_up = {"cwd": "/work", "mcpServers": [declaration(provided)]}
        await harness.send({"id": 1, "method": "session/new", "params": set_up})
        request = await harness.agent.receive()
        assert request["params"] == set_up
        harness.agent.answer(request, {"sessionId": "s1"})
        await harness.client.receive()

        provider = Provider(harness.client, provided)
        consumer = Consumer(harness.agent, provider)
        if consumed == "stateless":
            call = {"method": "tools/call", "params": {**CALL, "_meta": META}}
            outcome = await consumer.ask("mcp/message", serverId="server-1", requestId="r", **call)
            result = outcome["result"]
        else:
            opened = await consumer.ask("mcp/connect", **{consumed: "server-1"})
            await consumer.ask("mcp/message", **opened, method="initialize", params=HELLO)
            harness.agent.send(
                {
                    "method": "mcp/message",
                    "params": {**opened, "method": "notifications/initialized"},
                }
            )
            call = {"method": "tools/call", "params": CALL}
            result = await consumer.ask("mcp/message", **opened, **call)
            assert await consumer.ask("mcp/disconnect", **opened) == {}

        assert result["content"] == SUM
        (called,) = provider.calls
        assert {name: called[name] for name in CALL} == CALL
