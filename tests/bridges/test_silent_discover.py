"""Servers of older SDKs that do not answer `server/discover` at all, not even with an error.

The agent takes MCP over ACP, in another form than the server offers it.
"""

from __future__ import annotations

from typing import Any

import pytest
import trio
from support.bridge_harness import situation
from trio.testing import wait_all_tasks_blocked

from conductor.errors import RequestError

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


def message(connection: Any, method: str, params: Any) -> dict[str, Any]:
    return {**connection, "method": method, "params": params}


async def test_an_agent_that_discovers_is_told_to_initialize_after_a_few_seconds(mock_clock):
    acp = {"mcpCapabilities": {"acp": True}}
    async with situation("acpId", era="old", capabilities=acp) as on:
        answer = on.client.handlers["mcp/message"]

        async def answer_known(params: Any) -> Any:
            if params["method"] == "server/discover":
                on.provider.log.append(("mcp/message", params))
                await trio.sleep_forever()
            return await answer(params)

        async def discover(connection: Any) -> None:
            with pytest.raises(RequestError) as refused:
                await ask("mcp/message", message(connection, "server/discover", {"_meta": META}))
            assert refused.value.code == -32601

        on.client.handlers["mcp/message"] = answer_known
        await on.declare()
        ask = on.agent.endpoint.request
        async with trio.open_nursery() as nursery:
            first = await ask("mcp/connect", {"serverId": "server-1"})
            nursery.start_soon(discover, first)
            await wait_all_tasks_blocked()
            assert "server/discover" in on.provider.methods()
            mock_clock.jump(SECONDS)
        hello = await ask("mcp/message", message(first, "initialize", HELLO))
        await discover(await ask("mcp/connect", {"serverId": "server-1"}))  # the clock stands still

    assert hello["protocolVersion"] == "2025-11-25"
    assert on.provider.methods().count("server/discover") == 1
