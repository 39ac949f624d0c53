"""Change notifications: a stream that the client opens (2026-07-28), or simply told (earlier)."""

from __future__ import annotations

import pytest
import trio
from support.bridge_harness import initialize, receive, receive_all, request, send, shim, situation

from conductor.errors import RequestError

META = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientCapabilities": {},
}
ID = "io.modelcontextprotocol/subscriptionId"
LISTEN = {"notifications": {"toolsListChanged": True}, "_meta": META}
CHANGED = "notifications/tools/list_changed"
ACKNOWLEDGED = "notifications/subscriptions/acknowledged"
CAPABILITIES = {"tools": {"listChanged": True}}
OLD = {
    "protocolVersion": "2025-11-25",
    "capabilities": CAPABILITIES,
    "serverInfo": {"name": "old", "version": "1"},
}
NEW = {
    "supportedVersions": ["2026-07-28"],
    "capabilities": CAPABILITIES,
    "resultType": "complete",
    "ttlMs": 0,
    "cacheScope": "private",
}


def server(on, *, speaks):
    """A server in the connecting binding that acknowledges a stream, and then announces."""

    def tell(method, params=None):
        carrier = {"connectionId": "c", "method": method}
        if params is not None:
            carrier["params"] = params
        on.client.notify("mcp/message", carrier)

    async def message(params):
        method = params["method"]
        if method == ("initialize" if speaks == "old" else "server/discover"):
            return OLD if speaks == "old" else NEW
        if method == "subscriptions/listen" and speaks == "new":
            meta = {"_meta": {ID: 77}}
            tell(ACKNOWLEDGED, {"notifications": {"toolsListChanged": True}, **meta})
            tell(CHANGED, meta)
            await trio.sleep_forever()
        if method in ("notifications/initialized", "announce"):
            if speaks == "old" and method == "announce":
                tell(CHANGED)
            return {}
        raise RequestError(-32601, "Method not found")

    on.client.handlers["mcp/connect"] = lambda params: {"connectionId": "c"}
    on.client.handlers["mcp/disconnect"] = lambda params: {}
    on.client.handlers["mcp/message"] = message


@pytest.mark.parametrize("speaks", ["old", "new"])
async def test_a_modern_client_gets_notifications_under_the_id_of_its_request(speaks):
    async with situation() as on:
        server(on, speaks=speaks)
        [entry] = await on.declare()
        async with shim(entry) as process:
            found = await request(process, 1, "server/discover", {"_meta": META})
            await send(process, 5, "subscriptions/listen", LISTEN)
            if speaks == "old":
                await send(process, 6, "announce", {"_meta": META})
            record_update = await receive_all(process, 3 if speaks == "old" else 2)

    assert found["result"]["supportedVersions"] == ["2026-07-28"]
    assert [one.get("method") for one in record_update][:2] == [ACKNOWLEDGED, CHANGED]
    assert [one["params"]["_meta"][ID] for one in record_update[:2]] == [5, 5]


async def test_a_legacy_client_of_a_modern_server_gets_plain_notifications():
    async with situation() as on:
        server(on, speaks="new")
        [entry] = await on.declare()
        async with shim(entry) as process:
            hello = await initialize(process)
            record_update = await receive(process)

    assert hello["result"]["capabilities"] == CAPABILITIES
    assert record_update == {"jsonrpc": "2.0", "method": CHANGED}


async def test_the_loss_of_the_agent_ends_its_shims():
    async with situation() as on:
        [entry] = await on.declare()
        async with shim(entry) as process:
            await initialize(process)
            on.agent.hang_up()
            with trio.fail_after(10):
                assert await process.wait() == 0
