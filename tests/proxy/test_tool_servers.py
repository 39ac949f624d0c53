"""`@tool` and attached servers: what an author writes, what an agent sees and calls."""

from __future__ import annotations

from typing import Any, Literal

import attrs
import pytest
from support.bridge_harness import mcp_client
from support.mcp_providers import toolbox

from bridges.bridge import McpBridge
from conductor.proxy import DeclarationError, Proxy, ToolCall, on, tool
from conductor.testing import FakeAgent, open_chain


@attrs.define(eq=False)
class Notes(Proxy):
    """Keeps notes."""

    greeting: str = "hello"
    seen: list[Any] = attrs.field(factory=list)

    @tool
    async def greet(self, name: str, call: ToolCall, times: int = 1) -> str:
        """Greet a person.

        Args:
            name: Who it is.
                In full.
            times: How often.

        Returns:
            What was said.
        """
        self.seen.append(call)
        return " ".join([f"{self.greeting} {name}"] * times)

    @tool(name="ask-user", description="Ask.")
    async def ask(self, kind: Literal["a", "b"]) -> str:
        answer = await self.client.request("_test/ask", {"kind": kind})
        return answer["says"]

    @tool
    async def prompt(self, call: ToolCall) -> dict[str, Any]:
        """Prompt the agent from inside of its own turn."""
        said = {"sessionId": call.session_id, "prompt": []}
        return await self.agent.request("session/prompt", said)

    @on("session/new")
    async def new(self, params, forward):
        params["cwd"] = "/changed"
        return await forward(params)


@pytest.mark.parametrize("mode", ["legacy", "auto"])
async def test_the_schema_of_a_tool_comes_from_its_method(mode):
    agent = FakeAgent()
    async with open_chain(Notes(), McpBridge(), agent, bridged=False) as client:
        await client.initialize()
        await client.new_session("/work")
        [given] = [h.params for h in agent.transcript if h.method == "session/new"]
        async with mcp_client(given["mcpServers"][0], mode=mode) as mcp:
            tools = {one.name: one for one in (await mcp.list_tools()).tools}
            said = await mcp.call_tool("greet", {"name": "Ann", "times": 2})

    assert given["cwd"] == "/changed"  # the author's own handler ran, too
    assert given["mcpServers"][0]["name"] == "Notes"
    assert list(tools) == ["greet", "ask-user", "prompt"]
    assert tools["greet"].description == "Greet a person.\n\nReturns:\n    What was said."
    assert tools["greet"].input_schema["properties"] == {
        "name": {"description": "Who it is. In full.", "title": "Name", "type": "string"},
        "times": {"default": 1, "description": "How often.", "title": "Times", "type": "integer"},
    }
    assert tools["ask-user"].input_schema["properties"]["kind"]["enum"] == ["a", "b"]
    assert tools["ask-user"].description == "Ask."
    assert said.content[0].text == "hello Ann hello Ann"


async def test_half_an_emoji_in_a_set_up_is_no_failure_of_a_proxy_with_tools():
    agent = FakeAgent()
    async with open_chain(Notes(), agent, bridged=False) as client:
        await client.initialize()
        servers = [{"name": "n", "command": "c", "args": ["\ud83d"], "env": []}]
        members = {
            "cwd": "/work",
            "mcpServers": servers,
            "_meta": {"\ud83d": "\ud83d"},
            "\ud83d": 1,
        }
        await client.request("session/new", members)

    [given] = [h.params for h in agent.transcript if h.method == "session/new"]
    declared, added = given.pop("mcpServers")
    assert (declared, added["name"]) == (servers[0], "Notes")
    assert given == {"cwd": "/changed", "_meta": {"\ud83d": "\ud83d"}, "\ud83d": 1}


async def test_a_tool_knows_which_session_called_it():
    agent, notes = FakeAgent(), Notes()
    async with open_chain(notes, McpBridge(), agent, bridged=False) as client:
        await client.initialize()
        for _ in range(2):
            await client.new_session("/work")
        given = [h.params["mcpServers"][0] for h in agent.transcript if h.method == "session/new"]
        for entry in reversed(given):
            async with mcp_client(entry, mode="auto") as mcp:
                await mcp.call_tool("greet", {"name": "x"})

    assert [call.session_id for call in notes.seen] == ["session-2", "session-1"]


async def test_a_tool_asks_the_client_and_prompts_the_agent_while_it_runs():
    agent = FakeAgent()
    async with open_chain(Notes(), McpBridge(), agent, bridged=False) as client:
        client.handlers["_test/ask"] = lambda params: {"says": params["kind"] * 2}
        await client.initialize()
        await client.new_session("/work")
        [given] = [h.params for h in agent.transcript if h.method == "session/new"]
        async with mcp_client(given["mcpServers"][0], mode="auto") as mcp:
            asked = await mcp.call_tool("ask-user", {"kind": "b"})
            prompted = await mcp.call_tool("prompt", {})

    assert asked.content[0].text == "bb"
    assert prompted.structured_content == {"stopReason": "end_turn"}


async def test_a_failed_request_of_a_tool_is_an_error_that_the_model_reads():
    agent = FakeAgent()
    async with open_chain(Notes(), McpBridge(), agent, bridged=False) as client:
        await client.initialize()
        await client.new_session("/work")
        [given] = [h.params for h in agent.transcript if h.method == "session/new"]
        async with mcp_client(given["mcpServers"][0], mode="auto") as mcp:
            asked = await mcp.call_tool("ask-user", {"kind": "b"})

    assert asked.is_error
    assert "Method not found" in asked.content[0].text


class Counts(Proxy):
    @tool
    async def count(self) -> int:
        """Count."""
        return "many"


async def test_what_a_tool_returns_against_its_annotation_is_told_to_the_user():
    agent = FakeAgent()
    async with open_chain(Counts(), McpBridge(), agent, bridged=False) as client:
        await client.initialize()
        await client.new_session("/work")
        [given] = [h.params for h in agent.transcript if h.method == "session/new"]
        async with mcp_client(given["mcpServers"][0], mode="auto") as mcp:
            asked = await mcp.call_tool("count", {})

    assert asked.content[0].text == "Error executing tool count: Internal error"
    told = client.transcript.text()
    line = Counts.count.__code__.co_firstlineno
    assert "Counts failed in tool count: Counts.count returned what its annotation does" in told
    assert f"(test_tool_servers.py:{line})" in told


async def test_a_native_agent_calls_tools_in_either_binding():
    agent = FakeAgent(capabilities={"mcpCapabilities": {"acp": True}})
    async with open_chain(Notes(), McpBridge(), agent, bridged=False) as client:
        await client.initialize()
        await client.new_session("/work")
        [given] = [h.params for h in agent.transcript if h.method == "session/new"]
        [server] = given["mcpServers"]
        ask = agent.endpoint.request
        params = {"name": "greet", "arguments": {"name": "Bob"}}

        connected = await ask("mcp/connect", {"serverId": server["serverId"]})
        hello = {
            "protocolVersion": "2025-06-18",
            "capabilities": {},
            "clientInfo": {"name": "agent", "version": "1"},
        }
        initialized = await ask(
            "mcp/message", {**connected, "method": "initialize", "params": hello}
        )
        agent.endpoint.notify("mcp/message", {**connected, "method": "notifications/initialized"})
        old = await ask("mcp/message", {**connected, "method": "tools/call", "params": params})
        assert await ask("mcp/disconnect", connected) == {}

        meta = {
            "io.modelcontextprotocol/protocolVersion": "2026-07-28",
            "io.modelcontextprotocol/clientCapabilities": {},
        }
        stateless = {"serverId": server["serverId"], "requestId": "1", "method": "tools/call"}
        new = await ask("mcp/message", {**stateless, "params": {**params, "_meta": meta}})

    assert server == {"type": "acp", "name": "Notes", "serverId": server["serverId"]}
    assert initialized["protocolVersion"] == "2025-06-18"
    assert old["content"] == new["result"]["content"] == [{"type": "text", "text": "hello Bob"}]


async def test_an_attached_server_is_offered_where_it_is_wanted():
    @attrs.define(eq=False)
    class Attached(Proxy):
        def mcp_servers(self):
            return [toolbox()]

        def has_tools_for(self, session):
            return session["cwd"] == "/yes"

    agent = FakeAgent()
    async with open_chain(Attached(), McpBridge(), agent, bridged=False) as client:
        await client.initialize()
        await client.new_session("/no")
        await client.new_session("/yes")
        no, yes = [h.params["mcpServers"] for h in agent.transcript if h.method == "session/new"]
        async with mcp_client(yes[0], mode="auto") as mcp:
            result = await mcp.call_tool("add", {"a": 20, "b": 22})

    assert no == []
    assert yes[0]["name"] == "toolbox"
    assert result.structured_content == {"result": 42}


def test_mistakes_are_found_at_import():
    with pytest.raises(DeclarationError, match="must be `async def`"):

        @tool
        def not_async(self): ...
