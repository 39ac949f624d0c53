"""The tool filter: listed and callable tools."""

from __future__ import annotations

import pytest
from mcp import MCPError
from support.bridge_harness import mcp_client
from support.mcp_providers import BINDINGS, Provider, declaration, toolbox

from bridges.bridge import McpBridge
from conductor.testing import FakeAgent, open_chain
from proxies.mcp_tools import McpTools


async def _filtered(binding, options, use, name="tools"):
    agent = FakeAgent()
    async with open_chain(McpTools(**options), McpBridge(), agent, bridged=False) as client:
        Provider(client, binding, toolbox).mount()
        await client.initialize()
        await client.new_session("/work", [declaration(binding, name)])
        [given] = [h.params for h in agent.transcript if h.method == "session/new"]
        async with mcp_client(given["mcpServers"][0], mode="auto") as mcp:
            return await use(mcp)


async def _names(mcp):
    return [tool.name for tool in (await mcp.list_tools()).tools]


@pytest.mark.parametrize("binding", BINDINGS)
@pytest.mark.parametrize(
    ("options", "names"),
    [
        ({}, ["add", "count", "echo"]),
        ({"allow": ("add", "c*")}, ["add", "count"]),
        ({"deny": ("*o*",)}, ["add"]),
        ({"allow": ("*",), "deny": ("add",)}, ["count", "echo"]),
        ({"prefix": "x_", "rename": {"add": "sum"}}, ["sum", "x_count", "x_echo"]),
    ],
)
async def test_the_agent_sees_only_allowed_tools(binding, options, names):
    assert await _filtered(binding, options, _names) == names


@pytest.mark.parametrize("binding", BINDINGS)
async def test_a_hidden_tool_is_refused(binding):
    async def use(mcp):
        with pytest.raises(MCPError, match="Unknown tool: add"):
            await mcp.call_tool("add", {"a": 1, "b": 2})

    await _filtered(binding, {"deny": ("add",)}, use)


@pytest.mark.parametrize("binding", BINDINGS)
async def test_a_renamed_tool_is_called_by_its_new_name_only(binding):
    async def use(mcp):
        with pytest.raises(MCPError, match="Unknown tool: add"):
            await mcp.call_tool("add", {"a": 1, "b": 2})
        return (await mcp.call_tool("sum", {"a": 1, "b": 2})).structured_content

    result = await _filtered(binding, {"rename": {"add": "sum"}, "prefix": "x_"}, use)
    assert result == {"result": 3}


async def test_a_prefix_is_taken_off_for_the_server():
    async def use(mcp):
        return (await mcp.call_tool("x_add", {"a": 1, "b": 2})).structured_content

    assert await _filtered("serverId", {"prefix": "x_"}, use) == {"result": 3}


async def test_a_description_is_overridden():
    async def use(mcp):
        return [tool.description for tool in (await mcp.list_tools()).tools]

    described = await _filtered("serverId", {"describe": {"add": "Sum."}}, use)
    assert described == ["Sum.", "Count, with progress.", "The text."]


@pytest.mark.parametrize("binding", BINDINGS)
async def test_other_servers_are_left_alone(binding):
    options = {"servers": ("other",), "deny": ("*",)}
    assert await _filtered(binding, options, _names) == ["add", "count", "echo"]
    assert await _filtered(binding, options, _names, name="other") == []


def test_names_with_a_server_are_warned_of():
    (warning,) = McpTools(allow=("read_*",), deny=("docs/delete_*",)).option_warnings()

    assert warning == (
        "deny",
        "`docs/delete_*` is compared with the tool's name alone: write `delete_*`, with"
        " `servers: [docs]` if only this server is meant",
    )
