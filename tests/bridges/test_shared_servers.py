"""Sessions of an agent that offers every session's MCP servers to every session's model.

The agent is played as opencode behaves (1.18.33): it starts each server when a session is set up,
keeps its list of tools, reads it again when it is told that it changed, and reports calls. The
shims are real.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any

import attrs
import pytest
import trio
from support.bridge_harness import shim
from support.mcp_providers import declaration
from support.raw_json import dumps

from bridges import shared_servers
from bridges.bridge import McpBridge
from bridges.call_attribution import tool_title
from conductor.errors import RequestError
from conductor.testing import FakeAgent, FakeClient, open_chain


@pytest.fixture(autouse=True)
def patience(monkeypatch):
    """The agent reads its lists, however slow the machine is."""
    monkeypatch.setattr(shared_servers, "_RELIST_TIMEOUT", 20.0)


@attrs.define(eq=False)
class Connection:
    """An MCP client on a shim."""

    process: trio.Process
    tools: list[str] = attrs.field(factory=list)
    lists: int = 0
    """How often the list of tools was read."""
    _ids: Any = attrs.field(factory=lambda: itertools.count(1))
    _waiting: dict[int, Any] = attrs.field(factory=dict)

    async def run(self, task_status) -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._read, nursery)
            await self.ask("initialize", {"protocolVersion": "2025-06-18"})
            await self.list_tools()
            task_status.started()

    async def ask(self, method: str, params: Any = None) -> Any:
        id = next(self._ids)
        send, receive = trio.open_memory_channel(1)
        self._waiting[id] = send
        message = {"jsonrpc": "2.0", "id": id, "method": method, "params": params or {}}
        await self.process.stdin.send_all(dumps(message) + b"\n")
        return await receive.receive()

    async def list_tools(self) -> None:
        with suppress(trio.BrokenResourceError):  # the shim ends with its session
            await self.ask("tools/list")

    async def _read(self, nursery: trio.Nursery) -> None:
        rest = b""
        async for chunk in self.process.stdout:
            *lines, rest = (rest + chunk).split(b"\n")
            for line in map(json.loads, lines):
                if line.get("method") == "notifications/tools/list_changed":
                    nursery.start_soon(self.list_tools)
                elif "method" in line:
                    pong = {"jsonrpc": "2.0", "id": line["id"], "result": {}}
                    with suppress(trio.BrokenResourceError):  # the shim ends with its session
                        await self.process.stdin.send_all(dumps(pong) + b"\n")
                else:
                    if "tools" in line.get("result", {}):
                        self.tools = [tool["name"] for tool in line["result"]["tools"]]
                        self.lists += 1
                    self._waiting.pop(line["id"]).send_nowait(line)


@attrs.define(eq=False)
class Sharing:
    """The agent. `turns` are what it does in prompts; a call is reported after it was made."""

    nursery: trio.Nursery
    name: str = "OpenCode"
    agent: FakeAgent = attrs.field(init=False)
    servers: dict[str, Connection] = attrs.field(factory=dict)
    seen: list[list[str]] = attrs.field(factory=list)
    """What the model of each prompt was offered."""
    turns: dict[str, Callable[[str], Awaitable[None]]] = attrs.field(factory=dict)
    """By the text of the prompt."""
    _calls: Any = attrs.field(factory=lambda: itertools.count(1))
    _sessions: Any = attrs.field(factory=lambda: itertools.count(1))

    def __attrs_post_init__(self) -> None:
        handlers = {
            "initialize": self.initialize,
            "session/new": self.new_session,
            "session/load": self.load_session,
            "session/prompt": self.prompt,
            "session/close": lambda params: {},
        }
        self.agent = FakeAgent(handlers=handlers)

    def initialize(self, params):
        return {"protocolVersion": 1, "agentCapabilities": {}, "agentInfo": {"name": self.name}}

    async def new_session(self, params):
        await self.start(params["mcpServers"])
        return {"sessionId": f"session-{next(self._sessions)}"}

    async def load_session(self, params):
        await self.start(params["mcpServers"])
        return {}

    async def start(self, servers):
        for entry in servers:
            process = await self.nursery.start(self._run_shim, entry)
            self.servers[entry["name"]] = connection = Connection(process)
            await self.nursery.start(connection.run)

    async def _run_shim(self, entry, task_status):
        async with shim(entry) as process:
            task_status.started(process)
            await process.wait()

    def tools(self):
        return [
            tool_title(name, tool) for name, each in self.servers.items() for tool in each.tools
        ]

    async def prompt(self, params):
        self.seen.append(self.tools())
        text = params["prompt"][0]["text"]
        if text in self.turns:
            await self.turns[text](params["sessionId"])
        return {"stopReason": "end_turn"}

    async def call(self, session: str, server: str, arguments: Any, *, reported: bool = True):
        """Call the tool `add` for a session; the outcome in short."""
        send, receive = trio.open_memory_channel(1)

        async def ask():
            params = {"name": "add", "arguments": arguments}
            send.send_nowait(await self.servers[server].ask("tools/call", params))

        self.nursery.start_soon(ask)
        if reported:
            update = {
                "sessionUpdate": "tool_call_update",
                "toolCallId": f"call-{next(self._calls)}",
                "title": tool_title(server, "add"),
                "status": "in_progress",
                "rawInput": arguments,
            }
            self.agent.update(session, update)
        answer = await receive.receive()
        return answer["result"]["of"] if "result" in answer else answer["error"]["message"]


@attrs.define(eq=False)
class Chat:
    client: FakeClient
    sharing: Sharing
    bridge: McpBridge

    async def new_session(self, server: str) -> str:
        return await self.client.new_session("/work", [declaration("serverId", "notes", server)])


@asynccontextmanager
async def chatting(name: str = "OpenCode") -> AsyncIterator[Chat]:
    async with trio.open_nursery() as nursery:
        sharing, bridge = Sharing(nursery, name), McpBridge()
        async with open_chain(bridge, sharing.agent, bridged=False) as client:
            numbers = itertools.count(1)

            def connect(params):
                return {"connectionId": f"{params['serverId']}.{next(numbers)}"}

            client.handlers["mcp/connect"] = connect
            client.handlers["mcp/disconnect"] = lambda params: {}
            client.handlers["mcp/message"] = answer
            await client.initialize()
            with trio.fail_after(30):
                yield Chat(client, sharing, bridge)
        nursery.cancel_scope.cancel()


def answer(params):
    match params["method"]:
        case "initialize":
            return {"protocolVersion": "2025-06-18", "capabilities": {"tools": {}}}
        case "tools/list":
            return {"tools": [{"name": "add", "inputSchema": {"type": "object"}}]}
        case "tools/call":
            return {"of": params["connectionId"].partition(".")[0]}
        case "prompts/list":
            return {"prompts": [{"name": "ask"}]}
        case "resources/list":
            return {"resources": [{"uri": "a:b", "name": "b"}]}
    return {}


REFUSED = "MCP server {!r} belongs to another session of this agent"


async def test_a_model_sees_the_tools_of_its_own_session():
    async with chatting() as on:
        first, second = await on.new_session("a"), await on.new_session("b")
        for session in (first, second, second, first):
            await on.client.prompt(session, "hello")

    own, other = ["notes_add"], ["notes-2_add"]
    assert on.sharing.seen == [own, other, other, own]


async def test_a_session_without_servers_sees_none():
    async with chatting() as on:
        await on.new_session("a")
        bare = await on.client.new_session("/work")
        await on.client.prompt(bare, "hello")
    assert on.sharing.seen == [[]]


async def test_a_lone_session_is_not_asked_to_read_anything_again():
    async with chatting() as on:
        session = await on.new_session("a")
        for _ in range(3):
            await on.client.prompt(session, "hello")
        assert on.sharing.servers["notes"].lists == 1
    assert on.sharing.seen == [["notes_add"]] * 3


async def test_a_call_for_a_session_that_is_not_active_is_refused():
    async with chatting() as on:
        first, second = await on.new_session("a"), await on.new_session("b")
        outcomes = []

        async def call_both(session):
            outcomes.append(await on.sharing.call(session, "notes", {}))
            outcomes.append(await on.sharing.call(session, "notes-2", {}))

        on.sharing.turns["go"] = call_both
        await on.client.prompt(first, "go")
        await on.client.prompt(second, "go")
        outcomes.append(await on.sharing.call(first, "notes", {}))

    one, two = REFUSED.format("notes"), REFUSED.format("notes-2")
    assert outcomes == ["a", two, one, "b", one]


async def test_while_both_are_active_a_call_reaches_the_server_of_its_own_session():
    async with chatting() as on:
        first, second = await on.new_session("a"), await on.new_session("b")
        outcomes = []
        started, go_on = trio.Event(), trio.Event()

        async def wait(session):
            started.set()
            await go_on.wait()

        async def call(session):
            for server in ("notes", "notes-2"):
                for number in range(3):
                    outcomes.append(await on.sharing.call(session, server, {"a": number}))
            go_on.set()

        on.sharing.turns |= {"wait": wait, "call": call}
        async with trio.open_nursery() as nursery:
            nursery.start_soon(on.client.prompt, first, "wait")
            await started.wait()
            nursery.start_soon(on.client.prompt, second, "call")

    assert outcomes == [REFUSED.format("notes")] * 3 + ["b"] * 3
    assert on.sharing.seen == [["notes_add"], ["notes_add", "notes-2_add"]]


async def test_a_session_that_ends_its_turn_is_hidden_from_one_that_works_on():
    async with chatting() as on:
        first, second = await on.new_session("a"), await on.new_session("b")
        started, go_on = trio.Event(), trio.Event()

        async def wait(session):
            started.set()
            await go_on.wait()
            while on.sharing.tools() != ["notes_add"]:
                await trio.lowlevel.checkpoint()

        on.sharing.turns["wait"] = wait
        async with trio.open_nursery() as nursery:
            nursery.start_soon(on.client.prompt, first, "wait")
            await started.wait()
            await on.client.prompt(second, "hello")
            go_on.set()
        await on.client.prompt(second, "hello")

    assert on.sharing.seen[-1] == ["notes-2_add"]


async def test_a_session_set_up_while_another_works_has_its_tools_in_its_first_prompt():
    async with chatting() as on:
        first = await on.new_session("a")
        started, go_on = trio.Event(), trio.Event()

        async def wait(session):
            started.set()
            await go_on.wait()

        on.sharing.turns["wait"] = wait
        async with trio.open_nursery() as nursery:
            nursery.start_soon(on.client.prompt, first, "wait")
            await started.wait()
            second = await on.new_session("b")
            while on.sharing.tools() != ["notes_add"]:  # hidden from the one that works
                await trio.lowlevel.checkpoint()
            await on.client.prompt(second, "hello")
            go_on.set()

    assert "notes-2_add" in on.sharing.seen[-1]


async def test_prompts_and_resources_are_hidden_too():
    async with chatting() as on:
        _, second = await on.new_session("a"), await on.new_session("b")
        found = []

        async def look(session):
            for server in ("notes", "notes-2"):
                for method in ("prompts/list", "resources/list", "resources/templates/list"):
                    answer = await on.sharing.servers[server].ask(method)
                    found.append(sum(map(len, answer["result"].values())))
            answer = await on.sharing.servers["notes"].ask("resources/read", {"uri": "a:b"})
            found.append(answer["error"]["message"])

        on.sharing.turns["look"] = look
        await on.client.prompt(second, "look")

    assert found == [0, 0, 0, 1, 1, 0, REFUSED.format("notes")]


async def test_new_tools_of_a_server_are_shown():
    """What is kept of the list to answer at once is not older than what the server announced."""
    async with chatting() as on:
        first, second = await on.new_session("a"), await on.new_session("b")
        await on.client.prompt(second, "hello")

        def more(params):
            if params["method"] == "tools/list":
                return {"tools": [{"name": n, "inputSchema": {}} for n in ("add", "remove")]}
            return answer(params)

        on.client.handlers["mcp/message"] = more
        lists = on.sharing.servers["notes"].lists
        carrier = {"connectionId": "a.1", "method": "notifications/tools/list_changed"}
        on.client.notify("mcp/message", carrier)
        while on.sharing.servers["notes"].lists == lists:
            await trio.lowlevel.checkpoint()
        await on.client.prompt(first, "hello")

    assert on.sharing.seen[-1] == ["notes_add", "notes_remove"]


async def test_an_agent_that_does_not_read_its_lists_again_is_not_waited_for_long(autojump_clock):
    """The prompt goes on after a while; calls are refused all the same. (No shim: no waiting.)"""
    from bridges.shared_servers import AgentSession, SessionFilter, SharedServers

    class Deaf:
        consumer = None

        def notify(self, method, params):
            pass

    shared = SharedServers(lambda tap: lambda: None, lambda s, then: None, lambda: None, True)
    mcp_connection = Deaf()
    mcp_connection.consumer = mcp_connection
    first, second = AgentSession("1"), AgentSession("2")
    session_filter = SessionFilter(shared, first, "notes", mcp_connection)
    assert session_filter.answered(b'{"tools":[1]}') == b'{"tools":[1]}'
    shared.begin(second)
    began = trio.current_time()
    await shared.show(second)
    assert trio.current_time() - began == shared_servers._RELIST_TIMEOUT
    refused = []
    assert not shared.may_forward(session_filter, "tools/call", None, refused.append)
    assert refused == [False]


async def test_a_session_that_is_loaded_again_keeps_its_names():
    async with chatting() as on:
        await on.new_session("a")
        second = await on.new_session("b")
        params = {
            "sessionId": second,
            "cwd": "/work",
            "mcpServers": [declaration("serverId", "notes", "b")],
        }
        for _ in range(3):
            await on.client.request("session/load", params)
        assert list(on.sharing.servers) == ["notes", "notes-2"]
        await on.client.prompt(second, "hello")
    assert on.sharing.seen == [["notes-2_add"]]


async def test_nothing_is_kept_of_sessions_that_ended():
    async with chatting() as on:
        for _ in range(3):
            session = await on.new_session("a")
            await on.client.prompt(session, "hello")
            await on.client.request("session/close", {"sessionId": session})
        await trio.testing.wait_all_tasks_blocked()
        shared = on.bridge._shared
        kept = (on.bridge._sessions, on.bridge._agent_sessions, shared._active, shared._listed)
        assert not any(kept)
        assert list(on.sharing.servers) == ["notes"]  # the name was free again


async def test_an_unknown_agent_that_refuses_a_name_gets_another_one():
    async with chatting("somebody") as on:
        given = []

        def new_session(params):
            name = params["mcpServers"][0]["name"]
            if name in given:
                raise RequestError(-32603, "Internal error", f"server '{name}' already registered")
            given.append(name)
            return {"sessionId": f"session-{len(given)}"}

        on.sharing.agent.handlers["session/new"] = new_session
        for _ in range(3):
            await on.new_session("a")

    assert given == ["notes", "notes-2", "notes-3"]


async def test_another_refusal_of_an_unknown_agent_is_the_answer():
    async with chatting("somebody") as on:
        await on.new_session("a")
        on.sharing.agent.handlers["session/new"] = refuse = Refuse()
        with pytest.raises(RequestError, match="no such directory"):
            await on.new_session("b")
        assert refuse.count == 1


class Refuse:
    count = 0

    def __call__(self, params):
        self.count += 1
        raise RequestError(-32000, "no such directory")


async def test_an_unknown_agent_that_shares_servers_gets_names_apart_from_then_on():
    async with chatting("somebody") as on:
        first, second = await on.new_session("a"), await on.new_session("b")
        assert list(on.sharing.servers) == ["notes"]  # the connection of the second session

        async def call(session):
            await on.sharing.call(session, "notes", {})

        on.sharing.turns["call"] = call
        await on.client.prompt(second, "call")
        assert not on.bridge._rewriter.names.apart
        await on.client.prompt(first, "call")
        assert on.bridge._rewriter.names.apart
        await on.new_session("c")
        assert list(on.sharing.servers) == ["notes", "notes-2"]
