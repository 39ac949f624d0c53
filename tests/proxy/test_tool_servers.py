"""`@tool` and servers of the MCP SDK: what an author writes, what an agent sees and calls.

`legacy` clients speak MCP 2025-11-25, `auto` ones 2026-07-28.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Literal

import attrs
import pytest
import trio
from mcp.shared.exceptions import MCPError
from support.bridge_harness import mcp_client
from support.mcp_providers import toolbox

from bridges.bridge import McpBridge
from conductor import log
from conductor.proxy import Context, Proxy, RequestError, Session, on, on_session, tool
from conductor.testing import FakeAgent, open_chain

ERAS = pytest.mark.parametrize("mode", ["legacy", "auto"])
MODERN = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientCapabilities": {},
}
"""`_meta` of a request without a connection."""


@attrs.define(eq=False)
class Notes(Proxy):
    """Keeps notes."""

    greeting: str = "hello"
    sessions: list[Session] = attrs.field(factory=list)
    waiting: trio.Event = attrs.field(factory=trio.Event)
    cancelled: trio.Event = attrs.field(factory=trio.Event)

    @tool
    async def greet(self, name: str, context: Context, times: int = 1) -> str:
        """Greet a person.

        Args:
            name: Who it is.
                In full.
            times: How often.

        Returns:
            What was said.
        """
        self.sessions.append(context.session)
        return " ".join([f"{self.greeting} {name}"] * times)

    @tool(name="ask-user", description="Ask.", annotations={"readOnlyHint": True})
    async def ask(self, kind: Literal["a", "b"]) -> str:
        answer = await self.client.request("_test/ask", {"kind": kind})
        return answer["says"]

    @tool
    async def prompt(self, context: Context) -> dict[str, Any]:
        """Prompt the agent from inside of its own turn."""
        said = {"sessionId": context.session.id, "prompt": []}
        return await self.agent.request("session/prompt", said)

    @tool
    async def count(self, to: int, context: Context) -> int:
        for number in range(1, to + 1):
            await context.sdk.report_progress(number, to, f"{number} of {to}")
        return to

    @tool
    async def where(self, context: Context) -> str:
        session = context.session
        await session.say("looking")
        return f"{session.id} in {session.cwd}, {session.opened_by}"

    @tool
    async def wait(self) -> None:
        self.waiting.set()
        try:
            await trio.sleep_forever()
        finally:
            self.cancelled.set()

    @tool
    async def crash(self) -> str:
        raise RuntimeError("the database password is secret")

    @tool
    async def lie(self) -> int:
        return "many"

    @on("session/new")
    async def new(self, params, forward):
        params["cwd"] = "/changed"
        return await forward(params)

    def has_tools_for(self, session):
        return session["cwd"] != "/none"


@asynccontextmanager
async def in_session(notes: Proxy, mode: str) -> AsyncIterator[tuple[Any, Any]]:
    """An ACP client with a session, and an MCP client of the proxy's first server in it."""
    agent = FakeAgent()
    async with open_chain(notes, McpBridge(), agent, bridged=False) as client:
        await client.initialize()
        await client.new_session("/work")
        async with mcp_client(declared(agent)[0][0], mode=mode) as mcp:
            yield client, mcp


def declared(agent: FakeAgent) -> list[list[dict[str, Any]]]:
    """The MCP servers of each session that the agent has got."""
    return [each.params["mcpServers"] for each in agent.transcript if each.method == "session/new"]


def text_of(result: Any) -> str:
    return str(result.content[0].text)


@ERAS
async def test_the_schema_of_a_tool_comes_from_its_method(mode):
    agent = FakeAgent()
    async with open_chain(Notes(), McpBridge(), agent, bridged=False) as client:
        await client.initialize()
        await client.new_session("/work")
        [given] = [each.params for each in agent.transcript if each.method == "session/new"]
        async with mcp_client(given["mcpServers"][0], mode=mode) as mcp:
            tools = {one.name: one for one in (await mcp.list_tools()).tools}
            said = await mcp.call_tool("greet", {"name": "Ann", "times": 2})

    assert given["cwd"] == "/changed"  # the author's own handler ran, too
    assert given["mcpServers"][0]["name"] == "Notes"
    assert list(tools)[:3] == ["greet", "ask-user", "prompt"]
    assert tools["greet"].description == "Greet a person.\n\nReturns:\n    What was said."
    assert tools["greet"].input_schema["properties"] == {
        "name": {"description": "Who it is. In full.", "title": "Name", "type": "string"},
        "times": {"default": 1, "description": "How often.", "title": "Times", "type": "integer"},
    }
    assert tools["ask-user"].input_schema["properties"]["kind"]["enum"] == ["a", "b"]
    assert tools["ask-user"].description == "Ask."
    assert tools["ask-user"].annotations.read_only_hint
    assert tools["where"].input_schema["properties"] == {}
    assert text_of(said) == "hello Ann hello Ann"


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
    first, added = given.pop("mcpServers")
    assert (first, added["name"]) == (servers[0], "Notes")
    assert given == {"cwd": "/changed", "_meta": {"\ud83d": "\ud83d"}, "\ud83d": 1}


async def test_a_tool_knows_which_session_called_it():
    agent, notes = FakeAgent(), Notes()
    async with open_chain(notes, McpBridge(), agent, bridged=False) as client:
        await client.initialize()
        for _ in range(2):
            await client.new_session("/work")
        for [server] in reversed(declared(agent)):
            async with mcp_client(server, mode="auto") as mcp:
                await mcp.call_tool("greet", {"name": "x"})

    assert [session.id for session in notes.sessions] == ["session-2", "session-1"]


@ERAS
async def test_the_context_has_the_acp_session(mode):
    async with in_session(Notes(), mode) as (client, mcp):
        result = await mcp.call_tool("where", {})

    assert text_of(result) == "session-1 in /work, new"
    assert client.transcript.text() == "looking"


async def test_the_session_is_the_one_that_handlers_of_events_get():
    @attrs.define(eq=False)
    class WithEvents(Notes):
        opened: list[Any] = attrs.field(factory=list)

        @on_session
        async def remember(self, session):
            self.opened.append(session)

    notes = WithEvents()
    async with in_session(notes, "auto") as (_, mcp):
        await mcp.call_tool("greet", {"name": "x"})

    assert notes.sessions[0] is notes.opened[0]


@pytest.mark.parametrize("meta", [{}, {"_meta": {"sessionId": "session-1"}}])
async def test_before_a_set_up_is_answered_the_session_has_the_id_that_the_agent_tells(meta):
    agent = FakeAgent(capabilities={"mcpCapabilities": {"acp": True}})
    notes, results = Notes(), list[Any]()

    async def new_session(params: Any) -> Any:
        call = {"name": "where", "arguments": {}, "_meta": MODERN}
        asked = {"requestId": "1", "method": "tools/call", "params": call, **meta}
        server = params["mcpServers"][0]["serverId"]
        results.append(await agent.endpoint.request("mcp/message", {"serverId": server, **asked}))
        return {"sessionId": "session-1"}

    agent.handlers["session/new"] = new_session
    async with open_chain(notes, agent, bridged=False) as client:
        await client.initialize()
        await client.new_session("/work")

    [result] = results
    assert result["result"].get("isError", False) == (not meta)
    assert client.transcript.text() == ("looking" if meta else "")


async def test_the_end_of_a_session_ends_its_servers():
    notes = Notes()
    agent = FakeAgent(
        capabilities={"mcpCapabilities": {"acp": True}},
        handlers={"session/close": lambda params: {}},
    )
    async with open_chain(notes, agent, bridged=False) as client:
        await client.initialize()
        await client.new_session("/work")
        [[server]] = declared(agent)
        call = {"name": "wait", "arguments": {}, "_meta": MODERN}
        asked = {"serverId": server["serverId"], "requestId": "1", "method": "tools/call"}
        answers: list[Any] = []

        async def ask() -> None:
            answers.append(await agent.endpoint.request("mcp/message", {**asked, "params": call}))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(ask)
            await notes.waiting.wait()
            await client.request("session/close", {"sessionId": "session-1"})
            with trio.fail_after(10):
                await notes.cancelled.wait()
        with pytest.raises(RequestError, match="No component provides this MCP server"):
            await ask()

    assert answers == [{"error": {"code": -32603, "message": "The MCP server ended"}}]


async def test_a_tool_asks_the_client_and_prompts_the_agent_while_it_runs():
    async with in_session(Notes(), "auto") as (client, mcp):
        client.handlers["_test/ask"] = lambda params: {"says": params["kind"] * 2}
        asked = await mcp.call_tool("ask-user", {"kind": "b"})
        prompted = await mcp.call_tool("prompt", {})

    assert text_of(asked) == "bb"
    assert prompted.structured_content == {"stopReason": "end_turn"}


@ERAS
async def test_progress_arrives_before_the_result(mode):
    happened: list[Any] = []

    async def progress(done: float, total: float | None, message: str | None) -> None:
        happened.append((done, total, message))

    async with in_session(Notes(), mode) as (_, mcp):
        result = await mcp.call_tool("count", {"to": 2}, progress_callback=progress)
        happened.append(result.structured_content)

    assert happened == [(1, 2, "1 of 2"), (2, 2, "2 of 2"), {"result": 2}]


@ERAS
async def test_a_tool_is_cancelled_with_its_call(mode):
    notes = Notes()
    async with in_session(notes, mode) as (_, mcp):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(mcp.call_tool, "wait", {})
            await notes.waiting.wait()
            nursery.cancel_scope.cancel()
        with trio.fail_after(10):
            await notes.cancelled.wait()


async def test_a_failed_request_of_a_tool_is_an_error_that_the_model_reads():
    async with in_session(Notes(), "auto") as (_, mcp):
        asked = await mcp.call_tool("ask-user", {"kind": "b"})

    assert asked.is_error
    assert "Method not found" in text_of(asked)


@ERAS
async def test_an_exception_is_told_to_the_user_and_not_to_the_model(mode, capfd):
    log.configure("error")
    async with in_session(Notes(), mode) as (client, mcp):
        result = await mcp.call_tool("crash", {})

    assert result.is_error
    assert text_of(result) == "Error executing tool crash: Internal error"
    line = Notes.crash.__code__.co_firstlineno + 2
    told = client.transcript.text()
    assert "Notes failed in crash: RuntimeError: the database password is secret" in told
    assert f"(test_tool_servers.py:{line})" in told
    logged = capfd.readouterr().err
    assert "handler failed" in logged
    assert "plugin=Notes" in logged
    assert "the database password is secret" in logged


async def test_what_a_tool_returns_against_its_annotation_is_told_to_the_user():
    async with in_session(Notes(), "auto") as (client, mcp):
        asked = await mcp.call_tool("lie", {})

    assert text_of(asked) == "Error executing tool lie: Internal error"
    told = client.transcript.text()
    line = Notes.lie.__code__.co_firstlineno
    assert "Notes failed in tool lie: Notes.lie returned what its annotation does" in told
    assert f"(test_tool_servers.py:{line})" in told


async def test_a_tool_that_the_sdk_cannot_offer_is_named_in_the_answer_and_the_log(capfd):
    class Strange(Proxy):
        @tool
        async def pay(self, amount: trio.Event) -> str:
            return ""

    log.configure("error")
    problem = "Strange.pay: the MCP SDK cannot offer it: Cannot generate a JsonSchema"
    with pytest.RaisesGroup(pytest.RaisesExc(MCPError, match=problem), flatten_subgroups=True):
        async with in_session(Strange(), "legacy"):
            pass

    assert problem in capfd.readouterr().err


async def test_a_native_agent_calls_tools_in_either_binding():
    agent = FakeAgent(capabilities={"mcpCapabilities": {"acp": True}})
    async with open_chain(Notes(), McpBridge(), agent, bridged=False) as client:
        await client.initialize()
        await client.new_session("/work")
        [[server]] = declared(agent)
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

        stateless = {"serverId": server["serverId"], "requestId": "1", "method": "tools/call"}
        new = await ask("mcp/message", {**stateless, "params": {**params, "_meta": MODERN}})

    assert server == {"type": "acp", "name": "Notes", "serverId": server["serverId"]}
    assert initialized["protocolVersion"] == "2025-06-18"
    assert old["content"] == new["result"]["content"] == [{"type": "text", "text": "hello Bob"}]


async def test_tools_and_servers_are_offered_in_the_sessions_that_are_chosen():
    class Attached(Notes):
        def mcp_servers(self, session):
            return () if session.cwd == "/none" else [toolbox()]

    agent = FakeAgent()
    async with open_chain(Attached(), McpBridge(), agent, bridged=False) as client:
        await client.initialize()
        await client.new_session("/none")
        await client.new_session("/work")
        none, both = declared(agent)
        async with mcp_client(both[1], mode="auto") as mcp:
            result = await mcp.call_tool("add", {"a": 20, "b": 22})

    assert none == []
    assert [each["name"] for each in both] == ["Attached", "toolbox"]
    assert result.structured_content == {"result": 42}
