"""Servers of older SDKs that do not answer `server/discover` at all, not even with an error.

The agent takes MCP over ACP, in another form than the server offers it: the bridge is between them.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import attrs
import trio
from support.bridge_harness import Situation, situation
from trio.testing import wait_all_tasks_blocked

SECONDS = 10
"""Agents wait longer for a server, 30 s and more."""
META = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientCapabilities": {},
    "io.modelcontextprotocol/clientInfo": {"name": "agent", "version": "1"},
}
HELLO = {
    "protocolVersion": "2025-11-25",
    "capabilities": {},
    "clientInfo": {"name": "agent", "version": "1"},
}


@attrs.define(eq=False)
class Agent:
    """One MCP client of the agent."""

    on: Situation
    connection: dict[str, str]

    async def ask(self, method: str, params: Any) -> Any:
        carried = {**self.connection, "method": method, "params": params}
        return await self.on.agent.endpoint.request("mcp/message", carried)

    async def discover(self, answered: Callable[[Any], object]) -> None:
        answered(await self.ask("server/discover", {"_meta": META}))

    async def initialize(self, answered: Callable[[Any], object]) -> None:
        answered(await self.ask("initialize", HELLO))


@asynccontextmanager
async def silent_server() -> AsyncIterator[Situation]:
    async with situation("acpId", era="old", capabilities={"mcpCapabilities": {"acp": True}}) as on:
        answer = on.client.handlers["mcp/message"]

        async def answer_known(params: Any) -> Any:
            if params["method"] == "server/discover":
                on.provider.log.append(("mcp/message", params))
                await trio.sleep_forever()
            return await answer(params)

        on.client.handlers["mcp/message"] = answer_known
        await on.declare()
        yield on


async def connected(on: Situation) -> Agent:
    return Agent(on, await on.agent.endpoint.request("mcp/connect", {"serverId": "server-1"}))


async def reached(on: Situation, method: str) -> None:
    """Check that the server gets this request, once all tasks have done what they can."""
    await wait_all_tasks_blocked()
    assert method in on.provider.methods()


async def test_an_agent_that_discovers_is_answered_after_a_few_seconds(mock_clock):
    async with silent_server() as on, trio.open_nursery() as nursery:
        agent, found = await connected(on), []
        nursery.start_soon(agent.discover, found.append)
        await reached(on, "server/discover")
        mock_clock.jump(SECONDS)
        await reached(on, "initialize")
        await on.until(lambda: bool(found))
        add = {"name": "add", "arguments": {"a": 2, "b": 3}, "_meta": META}
        result = await agent.ask("tools/call", add)

        again = await connected(on)  # the clock stands still
        await again.discover(found.append)

    assert found[0]["supportedVersions"] == found[1]["supportedVersions"] == ["2026-07-28"]
    assert result["structuredContent"] == {"result": 5}
    assert on.provider.methods().count("server/discover") == 1


async def test_an_agent_that_does_not_wait_for_the_discovery_is_initialized_too(mock_clock):
    async with silent_server() as on, trio.open_nursery() as nursery:
        agent = await connected(on)
        nursery.start_soon(agent.discover, print)
        await reached(on, "server/discover")
        hello: list[Any] = []
        nursery.start_soon(agent.initialize, hello.append)
        mock_clock.jump(SECONDS)
        await on.until(lambda: bool(hello))
        result = await agent.ask("tools/call", {"name": "add", "arguments": {"a": 2, "b": 3}})
        nursery.cancel_scope.cancel()

    assert hello[0]["protocolVersion"] == "2025-11-25"
    assert result["structuredContent"] == {"result": 5}
