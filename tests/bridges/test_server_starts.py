"""MCP servers that fail or hang while a session is set up."""

from __future__ import annotations

import sys
from types import SimpleNamespace

import pytest
import trio
from support.bridge_harness import initialize, send, shim, situation

from bridges.bridge import McpBridge
from conductor.errors import RequestError
from conductor.proxy import Proxy, tool
from conductor.testing import FakeAgent, open_chain

GONE = {"type": "http", "name": "web", "url": "http://127.0.0.1:9/", "headers": []}
TOOLS = {"type": "acp", "name": "tools", "serverId": "server-1"}

pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning")


def starting_agent(*, strict):
    """The set-up handler of an agent that starts its servers before it answers; a strict one
    refuses the session if one fails."""
    set_ups = []

    async def new_session(params):
        set_ups.append([server["name"] for server in params["mcpServers"]])
        for entry in params["mcpServers"]:
            async with shim(entry) as process:
                answer = await initialize(process)
            if strict and "error" in answer:
                raise RequestError(-32603, "Internal error", "could not start a server")
        return {"sessionId": "s1"}

    return {"session/new": new_session}, set_ups


async def hang(params):
    await trio.sleep_forever()


async def until_told(on):
    """The words of the first notice to the user."""
    found = []

    def told():
        found[:] = [each for each in on.client.transcript if each.method == "session/update"]
        return bool(found)

    await on.until(told)
    [message] = found
    return message.params["update"]


async def test_a_session_goes_on_without_a_server_that_its_agent_refuses():
    handlers, set_ups = starting_agent(strict=True)
    with trio.fail_after(20):
        async with situation(handlers=handlers) as on:
            session = await on.client.new_session("/work", [GONE, TOOLS])
            update = await until_told(on)

    assert session == "s1"
    assert set_ups == [["web", "tools"], ["tools"]]
    assert "MCP server web did not start" in update["content"]["text"]
    assert "cannot be reached" in update["content"]["text"]


async def test_a_server_that_fails_is_told_where_the_agent_ignores_it():
    handlers, set_ups = starting_agent(strict=False)
    with trio.fail_after(20):
        async with situation(handlers=handlers) as on:
            await on.client.new_session("/work", [GONE])
            update = await until_told(on)

    assert set_ups == [["web"]]
    assert "MCP server web did not start" in update["content"]["text"]


async def test_a_server_that_hangs_is_refused_after_the_timeout():
    handlers, set_ups = starting_agent(strict=True)
    with trio.fail_after(20):
        async with situation(handlers=handlers, start_timeout=0.2) as on:
            on.client.handlers["mcp/connect"] = hang
            await on.client.new_session("/work", [TOOLS])
            update = await until_told(on)

    assert set_ups == [["tools"], []]
    assert "did not answer within 0.2 s" in update["content"]["text"]


@pytest.mark.parametrize("agent_waits", [True, False])
async def test_a_slow_server_is_named_before_its_time_is_over(monkeypatch, agent_waits):
    asked, logged = trio.Event(), trio.Event()
    log = SimpleNamespace(warning=lambda event, server: logged.set())
    monkeypatch.setattr("bridges.server_starts.log", log)
    monkeypatch.setattr("bridges.server_starts.SLOW", 0.05)

    async def connect(params):
        asked.set()
        await trio.sleep_forever()

    async def new_session(params):
        nursery.start_soon(start, params["mcpServers"][0])
        await (logged if agent_waits else asked).wait()
        return {"sessionId": "s1"}

    async def start(entry):
        async with shim(entry) as process:
            await initialize(process)

    with trio.fail_after(20):
        async with situation(handlers={"session/new": new_session}) as on:
            on.client.handlers["mcp/connect"] = connect
            async with trio.open_nursery() as nursery:
                await on.client.new_session("/work", [TOOLS])
                update = await until_told(on)
                nursery.cancel_scope.cancel()

    assert update["content"]["text"] == (
        "\n\n[acp-conductor] waiting for MCP server tools to start; for at most 30 s\n\n"
    )
    assert logged.is_set()


@pytest.mark.parametrize("strict", [True, False])
async def test_a_required_server_fails_the_session(strict):
    handlers, set_ups = starting_agent(strict=strict)
    with trio.fail_after(20):
        async with situation(handlers=handlers, requires_servers=True) as on:
            with pytest.raises(RequestError) as failed:
                await on.client.new_session("/work", [GONE])

    assert failed.value.message.startswith("MCP server 'web' did not start: ")
    assert len(set_ups) == 1


async def test_the_error_names_all_required_servers_that_failed():
    handlers, _ = starting_agent(strict=False)
    with trio.fail_after(20):
        async with situation(handlers=handlers, requires_servers=True) as on:
            with pytest.raises(RequestError) as failed:
                await on.client.new_session("/work", [GONE, {**GONE, "name": "api"}])

    assert "MCP server 'web' did not start: " in failed.value.message
    assert "; MCP server 'api' did not start: " in failed.value.message


async def test_a_required_server_that_the_agent_never_starts_fails_the_session():
    with trio.fail_after(20):
        async with situation(requires_servers=True, start_timeout=0.2) as on:
            with pytest.raises(RequestError, match="the agent did not start it"):
                await on.client.new_session("/work", [TOOLS])


async def test_a_required_server_that_hangs_is_not_blamed_on_the_agent():
    asked = trio.Event()

    async def connect(params):
        asked.set()
        await trio.sleep_forever()

    async def new_session(params):
        nursery.start_soon(start, params["mcpServers"][0])
        await asked.wait()
        return {"sessionId": "s1"}

    async def start(entry):
        async with shim(entry) as process:
            await send(process, 0, "initialize")
            await process.wait()  # with an answer or without: the session is refused meanwhile

    required = {"requires_servers": True, "start_timeout": 0.5}
    with trio.fail_after(20):
        async with situation(handlers={"session/new": new_session}, **required) as on:
            on.client.handlers["mcp/connect"] = connect
            async with trio.open_nursery() as nursery:
                with pytest.raises(RequestError, match="The MCP server did not answer within"):
                    await on.client.new_session("/work", [TOOLS])
                nursery.cancel_scope.cancel()


async def test_servers_that_start_are_not_mentioned():
    handlers, set_ups = starting_agent(strict=True)
    with trio.fail_after(20):
        async with situation(handlers=handlers, requires_servers=True) as on:
            await on.client.new_session("/work", [TOOLS])

    assert set_ups == [["tools"]]
    assert not [each for each in on.client.transcript if each.method == "session/update"]


def without_module(monkeypatch, name):
    """Let the import of a module fail, as that of one that another thread has half imported."""
    monkeypatch.delitem(sys.modules, name, raising=False)
    monkeypatch.setitem(sys.modules, name, None)


async def test_a_client_that_cannot_be_imported_is_told_at_once(monkeypatch):
    handlers, _ = starting_agent(strict=False)
    without_module(monkeypatch, "mcp.client.sse")
    with trio.fail_after(20):
        async with situation(handlers=handlers) as on:
            await on.client.new_session("/work", [{**GONE, "type": "sse"}])
            update = await until_told(on)

    assert "MCP server web did not start" in update["content"]["text"]
    assert "The MCP SDK cannot be imported: import of mcp.client.sse" in update["content"]["text"]


class Notes(Proxy):
    @tool
    async def note(self, text: str) -> str:
        """Keep a note."""
        return text


async def test_tools_that_cannot_be_imported_are_told_at_once(monkeypatch):
    handlers, set_ups = starting_agent(strict=True)
    without_module(monkeypatch, "mcp.server.mcpserver")
    with trio.fail_after(20):
        async with open_chain(
            Notes(), McpBridge(), FakeAgent(handlers=handlers), bridged=False
        ) as client:
            await client.initialize()
            session = await client.new_session("/work")
            update = await client.transcript.wait("session/update agent_message_chunk")

    assert session == "s1"
    assert set_ups == [["Notes"], []]
    text = update.params["update"]["content"]["text"]
    assert "MCP server Notes did not start" in text
    assert "import of mcp.server.mcpserver" in text
