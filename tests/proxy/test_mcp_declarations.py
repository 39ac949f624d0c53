"""`mcp_servers(session)`: further MCP servers of a session, in both versions of the protocol."""

from __future__ import annotations

import os
import sys
from typing import Any

import attrs
import pytest
from support.bridge_harness import mcp_client
from support.mcp_providers import toolbox

from bridges.bridge import McpBridge
from conductor import log
from conductor.errors import RequestError
from conductor.proxy import Proxy, Session, on
from conductor.schema import v1, v2
from conductor.testing import FakeAgent, open_chain

DOCS = {"name": "docs", "command": sys.executable, "args": ["-m", "docs"], "env": {"TOKEN": "x"}}
API = {"name": "api", "url": "https://mcp.example.org/mcp", "headers": {"Authorization": "y"}}

STDIO = {
    "name": "docs",
    "command": sys.executable,
    "args": ["-m", "docs"],
    "env": [{"name": "TOKEN", "value": "x"}],
}
HTTP = {
    "type": "http",
    "name": "api",
    "url": "https://mcp.example.org/mcp",
    "headers": [{"name": "Authorization", "value": "y"}],
}
CAPABILITIES = {
    1: {"mcpCapabilities": {"http": True}},
    2: {"session": {"mcp": {"stdio": {}, "http": {}}}},
}


@attrs.define(eq=False)
class More(Proxy):
    """Adds servers, and remembers for which sessions."""

    servers: list[Any] = attrs.field(factory=lambda: [DOCS, API])
    sessions: list[tuple[Any, ...]] = attrs.field(factory=list)

    async def mcp_servers(self, session: Session) -> list[Any]:
        names = [each["name"] for each in session.mcp_servers]
        known = (session.id, session.opened_by, session.forked_from, session.cwd, names)
        self.sessions.append((*known, session.protocol_version))
        return self.servers


def agent_of(version: int) -> FakeAgent:
    accepted = {"session/load", "session/resume", "session/fork"}
    handlers = {method: lambda params: {} for method in accepted}
    handlers["session/fork"] = lambda params: {"sessionId": "forked"}
    return FakeAgent(capabilities=CAPABILITIES[version], handlers=handlers)


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("method", ["new", "load", "resume", "fork"])
async def test_servers_are_added_to_every_session_set_up(version, method):
    agent, more = agent_of(version), More()
    mine = {"name": "mine", "command": "/bin/true", "args": [], "env": []}
    async with open_chain(more, agent, bridged=False) as client:
        await client.initialize(version=version)
        params: dict[str, Any] = {"cwd": "/work", "mcpServers": [mine]}
        if method != "new":
            params["sessionId"] = "old"
        await client.request(f"session/{method}", params)

    [got] = [each.params for each in agent.transcript if each.method == f"session/{method}"]
    stdio = STDIO if version == 1 else {"type": "stdio", **STDIO}
    assert got == {**params, "mcpServers": [mine, stdio, HTTP]}
    id = "old" if method in ("load", "resume") else ""
    forked_from = "old" if method == "fork" else None
    assert more.sessions == [(id, method, forked_from, "/work", ["mine"], version)]


async def test_a_session_for_which_there_are_no_servers_keeps_its_bytes():
    class Nothing(Proxy):
        def mcp_servers(self, session):
            return ()

    agent = FakeAgent()
    async with open_chain(Nothing(), agent, bridged=False) as client:
        await client.initialize()
        await client.request("session/new", {"cwd": "/work", "x": 10**30, "mcpServers": None})

    [got] = [each.params for each in agent.transcript if each.method == "session/new"]
    assert got == {"cwd": "/work", "x": 10**30, "mcpServers": None}


@pytest.mark.parametrize("version", [1, 2])
async def test_schema_types_of_either_version_are_declarations(version):
    variable = v1.EnvVariable(name="TOKEN", value="x")
    header = v2.HttpHeader(name="Authorization", value="y")
    servers = [
        v1.McpServerStdio("docs", sys.executable, ["-m", "docs"], [variable]),
        v2.McpServerHttp(name="api", url="https://mcp.example.org/mcp", headers=[header]),
        v2.McpServerStdio(name="other", command="/bin/true"),
    ]
    agent = agent_of(version)
    async with open_chain(More(servers), agent, bridged=False) as client:
        await client.initialize(version=version)
        await client.new_session("/work")

    [got] = [each.params for each in agent.transcript if each.method == "session/new"]
    other = {"name": "other", "command": "/bin/true", "args": [], "env": []}
    stdio = {} if version == 1 else {"type": "stdio"}
    assert got["mcpServers"] == [{**stdio, **STDIO}, HTTP, {**stdio, **other}]


async def test_a_command_is_looked_up_in_path(monkeypatch):
    monkeypatch.setenv("PATH", os.path.dirname(sys.executable))
    name = os.path.basename(sys.executable)
    servers = [{"name": "a", "command": name}, {"name": "b", "command": "no-such-program"}]
    agent = agent_of(1)
    async with open_chain(More(servers), agent, bridged=False) as client:
        await client.initialize()
        await client.new_session("/work")

    [got] = [each.params for each in agent.transcript if each.method == "session/new"]
    assert [each["command"] for each in got["mcpServers"]] == [sys.executable, "no-such-program"]


async def test_a_server_with_a_name_that_is_taken_is_left_out(capfd):
    log.configure("warning")
    mine = {"name": "docs", "command": "/bin/true", "args": [], "env": []}
    agent = agent_of(1)
    async with open_chain(More([DOCS, API, API]), agent, bridged=False) as client:
        await client.initialize()
        await client.new_session("/work", [mine])

    [got] = [each.params for each in agent.transcript if each.method == "session/new"]
    assert got["mcpServers"] == [mine, HTTP]
    logged = capfd.readouterr().err
    assert logged.count("MCP server left out: the session has one of this name") == 2
    assert "name=docs" in logged
    assert "name=api" in logged


@pytest.mark.parametrize(
    ("server", "problem"),
    [
        ({"command": "x"}, "More.mcp_servers() returned an MCP server without a name"),
        ({"name": "x"}, "More.mcp_servers(): the MCP server 'x' has neither one `command`"),
        ({"name": "x", "command": ["uvx", "x"]}, "(a text, with the other words in `args`)"),
        ({"name": "x", "command": "a", "url": "b"}, "has neither one `command`"),
        ({"name": "x", "type": "pipe", "url": "b"}, "has neither one `command`"),
        ("docs", "More.mcp_servers() returned a str: return declarations, or `Server`"),
    ],
)
async def test_a_wrong_declaration_fails_the_set_up_and_says_what_to_write(server, problem):
    async with open_chain(More([server]), FakeAgent(), bridged=False) as client:
        await client.initialize()
        with pytest.raises(RequestError) as failed:
            await client.new_session("/work")

    assert problem in failed.value.data["reason"]


async def test_a_request_error_of_mcp_servers_is_the_answer():
    class Refusing(Proxy):
        def mcp_servers(self, session):
            raise RequestError(-32050, "no servers today")

    async with open_chain(Refusing(), FakeAgent(), bridged=False) as client:
        await client.initialize()
        with pytest.raises(RequestError, match="no servers today"):
            await client.new_session("/work")


async def test_a_handler_of_the_author_sees_the_servers():
    seen: list[Any] = []

    class Both(More):
        @on("session/new")
        async def look(self, params, forward):
            seen.extend(each["name"] for each in params["mcpServers"])
            return await forward()

    async with open_chain(Both(), agent_of(1), bridged=False) as client:
        await client.initialize()
        await client.new_session("/work")

    assert seen == ["docs", "api"]


@pytest.mark.parametrize("mode", ["legacy", "auto"])
async def test_a_server_object_serves_all_connections_of_the_session(mode):
    """With declarations beside it, over the bridge, for two clients at a time."""
    agent = FakeAgent()
    server = toolbox()
    async with open_chain(More([DOCS, server]), McpBridge(), agent, bridged=False) as client:
        await client.initialize()
        await client.new_session("/work")
        [given] = [h.params for h in agent.transcript if h.method == "session/new"]
        names = {each["name"]: each for each in given["mcpServers"]}
        async with (
            mcp_client(names["toolbox"], mode=mode) as one,
            mcp_client(names["toolbox"], mode=mode) as two,
        ):
            sums = [await mcp.call_tool("add", {"a": 20, "b": 22}) for mcp in (one, two)]
        async with mcp_client(names["toolbox"], mode=mode) as again:
            sums.append(await again.call_tool("add", {"a": 20, "b": 22}))

    assert sorted(names) == ["docs", "toolbox"]
    assert [each.structured_content for each in sums] == [{"result": 42}] * 3
