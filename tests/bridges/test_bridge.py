"""Capabilities, declarations and names for the agent; native agents."""

from __future__ import annotations

import sys

import pytest
from support.bridge_harness import PassingProxy, situation
from support.mcp_providers import BINDINGS, declaration

from conductor.bridge_api import declared_server_names
from conductor.errors import RequestError
from conductor.testing import FakeAgent, open_chain

ACP = {"mcpCapabilities": {"acp": True}}


async def test_an_agent_without_acp_is_announced_with_it():
    async with situation(capabilities={"mcpCapabilities": {"http": True}}) as on:
        [answer] = [h for h in on.client.transcript if h.method == "initialize"]
        assert answer.result["agentCapabilities"] == {
            "mcpCapabilities": {"http": True, "acp": True}
        }


@pytest.mark.parametrize("binding", BINDINGS)
@pytest.mark.parametrize(
    "method", ["session/new", "session/load", "session/resume", "session/fork"]
)
async def test_every_set_up_is_rewritten(binding, method):
    async with situation(binding, handlers={method: lambda params: {"sessionId": "s"}}) as on:
        servers = [
            {"name": "own", "command": "/bin/own", "args": [], "env": []},
            {**declaration(binding), "_meta": {"big": 1}, "later": [1]},
        ]
        await on.client.request(method, {"sessionId": "s", "cwd": "/", "mcpServers": servers})
        own, bridged = on.given()

    assert own == servers[0]
    assert {name: bridged[name] for name in ("name", "command", "_meta", "later")} == {
        "name": "tools",
        "command": sys.executable,
        "_meta": {"big": 1},
        "later": [1],
    }
    assert not {"type", "id", "serverId"} & bridged.keys()


async def test_messages_without_declarations_keep_their_bytes():
    """Numbers beyond a float, odd spacing, repeated and unknown keys."""
    params = (
        b'{"cwd":"/","mcpServers":[{"name":"a" , "x":1e400}],"x":1,"x":12345678901234567890123}'
    )
    async with situation() as on:
        await on.client.request("session/new", params)
        assert [h.raw for h in on.agent.transcript if h.method == "session/new"] == [params]


async def test_a_rewritten_set_up_keeps_the_other_members_bytes():
    params = (
        b'{"x":1e400,"mcpServers":[{"y":1e400},{"type":"acp","name":"a","serverId":"b","z":1e400}]}'
    )
    async with situation() as on:
        await on.client.request("session/new", params)
        [raw] = [h.raw for h in on.agent.transcript if h.method == "session/new"]
    assert raw.startswith(b'{"x":1e400,"mcpServers":[{"y":1e400},{"name":"a",')
    assert raw.endswith(b'"z":1e400}]}')


async def test_version_two_says_that_it_is_stdio():
    agent = FakeAgent(capabilities={"session": {"mcp": {"stdio": {}}}})
    async with open_chain(*_bridge(), agent, bridged=False) as client:
        answer = await client.initialize(version=2)
        await client.request("session/new", {"cwd": "/", "mcpServers": [declaration("serverId")]})
        [given] = [h for h in agent.transcript if h.method == "session/new"]
    assert answer["capabilities"]["session"]["mcp"] == {"stdio": {}, "acp": {}}
    assert given.params["mcpServers"][0]["type"] == "stdio"


@pytest.mark.parametrize("capabilities", [{}, {"session": {"mcp": {"http": {}}}}])
async def test_an_agent_that_takes_no_stdio_servers_is_given_none(capabilities):
    agent = FakeAgent(capabilities=capabilities)
    async with open_chain(*_bridge(), agent, bridged=False) as client:
        answer = await client.initialize(version=2)
        params = {"cwd": "/", "mcpServers": [declaration("serverId")]}
        with pytest.raises(RequestError, match="neither over ACP nor") as refused:
            await client.request("session/new", params)
        await client.request("session/new", {"cwd": "/", "mcpServers": []})
    assert answer["capabilities"] == capabilities
    assert refused.value.code == -32602
    assert [h.params["mcpServers"] for h in agent.transcript if h.method == "session/new"] == [[]]


async def test_off_never_lets_a_declaration_through():
    async with situation(mode="off") as on:
        with pytest.raises(RequestError, match="mcp_bridge is off"):
            await on.declare()
        [answer] = [h for h in on.client.transcript if h.method == "initialize"]
    assert answer.result["agentCapabilities"] == {}


async def test_off_leaves_native_agents_alone():
    async with situation(mode="off", capabilities=ACP) as on:
        assert await on.declare() == [declaration("serverId")]


@pytest.mark.parametrize("binding", BINDINGS)
async def test_a_native_agent_gets_declarations_unchanged(binding):
    async with situation(binding, capabilities=ACP) as on:
        assert await on.declare() == [declaration(binding)]


async def test_a_malformed_declaration_is_refused():
    async with situation() as on:
        with pytest.raises(RequestError, match="needs a name and a serverId"):
            await on.declare({"type": "acp", "name": "x"})


async def test_two_servers_of_one_set_up_have_different_names():
    """For every agent: most keep the servers of a session by name."""
    async with situation() as on:
        own = {"name": "tools-2", "command": "/bin/own", "args": [], "env": []}
        bridged = [declaration("serverId", id=id) for id in ("a", "b", "c")]
        given = await on.declare(bridged[0], own, *bridged[1:])
    assert [entry["name"] for entry in given] == ["tools", "tools-2", "tools-3", "tools-4"]


async def test_a_renamed_server_is_told_in_the_answer():
    """Proxies read the declared name from it, for tool names that the agent makes of its own."""
    servers = [declaration("serverId", id=id) for id in ("a", "b")]
    async with situation() as on:
        first = await on.client.request("session/new", {"cwd": "/", "mcpServers": servers[:1]})
        second = await on.client.request("session/new", {"cwd": "/", "mcpServers": servers})

    assert "_meta" not in first
    assert declared_server_names(second) == {"tools-2": "tools"}


async def test_a_message_for_no_connection_is_a_clear_error():
    async with situation() as on:
        await on.declare()
        with pytest.raises(RequestError, match="Unknown MCP connection"):
            await on.client.request("mcp/message", {"connectionId": "?", "method": "ping"})
        with pytest.raises(RequestError, match="Not an MCP message"):
            await on.client.request("mcp/message", {"connectionId": 5})
        on.client.notify("mcp/message", {"connectionId": "?", "method": "notifications/x"})
        await on.client.request("session/new", {"cwd": "/", "mcpServers": []})
        assert not [h for h in on.agent.transcript if h.method == "mcp/message"]


async def test_native_traffic_goes_to_the_nearest_provider():
    """A proxy that owns a server answers; what it does not know goes on to the client."""

    class Owner:
        async def message(self, params):
            if params["serverId"] == "mine":
                return {"result": {"of": "proxy"}}
            raise RequestError(-33001, "no such server")

    agent = FakeAgent(capabilities=ACP)
    proxy = PassingProxy(handlers={"mcp/message": Owner().message})
    async with open_chain(proxy, *_bridge(), agent, bridged=False) as client:
        await client.initialize()
        mine = {"serverId": "mine", "requestId": "1", "method": "ping"}
        assert await agent.endpoint.request("mcp/message", mine) == {"result": {"of": "proxy"}}
        with pytest.raises(RequestError) as nobody:
            await agent.endpoint.request("mcp/connect", {"serverId": "nobodys"})
    assert nobody.value.code == -32601


def _bridge():
    from bridges.bridge import McpBridge

    return (McpBridge(),)


def test_the_bridge_is_found_by_its_entry_point():
    from bridges.bridge import McpBridge
    from conductor.plugins.loading import entry_points

    assert entry_points()["mcp-bridge"].load() is McpBridge


def test_constants_match_the_sdk():
    import mcp.types as sdk
    from mcp.types import version
    from mcp_types import methods

    from bridges import revisions

    keys = {
        revisions._VERSION_KEY: sdk.PROTOCOL_VERSION_META_KEY,
        revisions._CAPABILITIES_KEY: sdk.CLIENT_CAPABILITIES_META_KEY,
        revisions._CLIENT_KEY: sdk.CLIENT_INFO_META_KEY,
        revisions._SERVER_KEY: sdk.SERVER_INFO_META_KEY,
        revisions._LEVEL_KEY: sdk.LOG_LEVEL_META_KEY,
    }
    assert list(keys) == list(keys.values())
    assert version.MODERN_PROTOCOL_VERSIONS == (revisions.MODERN_VERSION,)
    assert version.HANDSHAKE_PROTOCOL_VERSIONS == revisions.LEGACY_VERSIONS
    assert methods.CACHEABLE_METHODS == revisions.CACHEABLE_METHODS
    assert methods.INPUT_REQUIRED_METHODS == revisions.INPUT_REQUIRED_METHODS
