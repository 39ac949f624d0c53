"""Change notifications: a stream that the client opens (2026-07-28), or simply told (earlier)."""

from __future__ import annotations

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
NEW = {
    "supportedVersions": ["2026-07-28"],
    "capabilities": CAPABILITIES,
    "resultType": "complete",
    "ttlMs": 0,
    "cacheScope": "private",
}


def server(on):
    """A server in the connecting binding that acknowledges a stream, and then announces."""

    def tell(method, params):
        on.client.notify("mcp/message", {"connectionId": "c", "method": method, "params": params})

    async def message(params):
        method = params["method"]
        if method == "server/discover":
            return NEW
        if method == "subscriptions/listen":
            meta = {"_meta": {ID: 77}}
            tell(ACKNOWLEDGED, {"notifications": {"toolsListChanged": True}, **meta})
            tell(CHANGED, meta)
            await trio.sleep_forever()
        raise RequestError(-32601, "Method not found")

    on.client.handlers["mcp/connect"] = lambda params: {"connectionId": "c"}
    on.client.handlers["mcp/disconnect"] = lambda params: {}
    on.client.handlers["mcp/message"] = message


async def test_a_modern_client_gets_notifications_under_the_id_of_its_request():
    async with situation() as on:
        server(on)
        [entry] = await on.declare()
        async with shim(entry) as process:
            await request(process, 1, "server/discover", {"_meta": META})
            await send(process, 5, "subscriptions/listen", LISTEN)
            told = await receive_all(process, 2)

    assert [one["method"] for one in told] == [ACKNOWLEDGED, CHANGED]
    assert [one["params"]["_meta"][ID] for one in told] == [5, 5]


async def test_a_legacy_client_of_a_modern_server_gets_plain_notifications():
    async with situation() as on:
        server(on)
        [entry] = await on.declare()
        async with shim(entry) as process:
            hello = await initialize(process)
            told = await receive(process)

    assert hello["result"]["capabilities"] == CAPABILITIES
    assert told == {"jsonrpc": "2.0", "method": CHANGED}


async def test_the_loss_of_the_agent_ends_its_shims():
    async with situation() as on:
        [entry] = await on.declare()
        async with shim(entry) as process:
            await initialize(process)
            on.agent.hang_up()
            with trio.fail_after(10):
                assert await process.wait() == 0
