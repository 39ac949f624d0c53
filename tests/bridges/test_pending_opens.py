"""A connection that is given up while it opens: what the server was asked for it is withdrawn."""

from __future__ import annotations

import pytest
import trio
from support.bridge_harness import initialize, send, shim, situation
from support.mcp_providers import declaration
from support.raw_json import compact

from conductor.bridge_api import Limits
from conductor.errors import RequestError

ACP = {"mcpCapabilities": {"acp": True}}
CLOSE = {"session/close": lambda params: {}}
META = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientCapabilities": {},
}


class Server:
    """Leaves one method without an answer, and knows when it is withdrawn."""

    def __init__(self, client, method, refused=()):
        self.method, self.refused = method, refused
        self.asked, self.withdrawn = trio.Event(), trio.Event()
        client.handlers["mcp/connect"] = self.connect
        client.handlers["mcp/message"] = self.message
        client.handlers["mcp/disconnect"] = lambda params: {}

    async def connect(self, params):
        if "acpId" in params:
            raise RequestError(-32602, "serverId is missing")
        await self._wait("mcp/connect")
        return {"connectionId": "c1"}

    async def message(self, params):
        await self._wait(params["method"])
        if params["method"] in self.refused:
            raise RequestError(-32601, "Method not found")
        return {}

    async def _wait(self, method):
        if method == self.method:
            self.asked.set()
            try:
                await trio.sleep_forever()
            except trio.Cancelled:
                self.withdrawn.set()
                raise


@pytest.mark.parametrize("how", ["kill", "session/close"])
@pytest.mark.parametrize(
    ("binding", "method", "refused", "first", "params"),
    [
        ("serverId", "mcp/connect", (), "initialize", {}),
        ("stateless", "server/discover", (), "initialize", {}),
        ("serverId", "server/discover", ("initialize",), "initialize", {}),
        ("serverId", "initialize", ("server/discover",), "server/discover", {"_meta": META}),
        ("serverId", "server/discover", (), "tools/list", {"_meta": META}),
    ],
)
async def test_requests_to_a_server_are_cancelled_when_its_open_is_abandoned(
    binding, method, refused, first, params, how
):
    async with situation(binding, handlers=CLOSE) as on:
        server = Server(on.client, method, refused)
        if binding == "stateless":
            del on.client.handlers["mcp/connect"]
        [entry] = await on.declare()
        async with shim(entry) as process:
            with trio.fail_after(5):
                await send(process, 1, first, params)
                await server.asked.wait()
                if how == "kill":
                    process.kill()
                else:
                    await on.client.request("session/close", {"sessionId": "session-1"})
                await server.withdrawn.wait()
                await on.until(lambda: not on.bridge._shims.shims)


async def test_requests_of_the_bridge_for_a_cancelled_request_are_cancelled():
    async with situation() as on:
        server = Server(on.client, "server/discover", ("initialize",))
        [entry] = await on.declare()
        async with shim(entry) as process:
            with trio.fail_after(5):
                await send(process, 1, "initialize")
                await server.asked.wait()
                note = {"jsonrpc": "2.0", "method": "notifications/cancelled"}
                text = compact({**note, "params": {"requestId": 1}})
                await process.stdin.send_all(text.encode() + b"\n")
                await server.withdrawn.wait()
                server.method, server.refused = "", ()
                assert "result" in await initialize(process)


async def ask_to_connect(on, errors):
    try:
        await on.agent.endpoint.request("mcp/connect", {"acpId": "server-1"})
    except RequestError as exc:
        errors.append(exc.code)


async def test_a_native_agent_that_cancels_its_connect_is_answered():
    async with situation(capabilities=ACP) as on:
        server = Server(on.client, "mcp/connect")
        await on.declare()
        with trio.fail_after(5):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(ask_to_connect, on, [])
                await server.asked.wait()
                nursery.cancel_scope.cancel()
            await server.withdrawn.wait()
            await on.until(lambda: not on.agent.endpoint.connection.sent)
            assert not on.bridge._native._connections


async def test_the_end_of_the_session_answers_a_connect_of_a_native_agent():
    errors: list[int] = []
    async with situation(capabilities=ACP, handlers=CLOSE) as on:
        on.bridge.limits = Limits(max_mcp_connections=1)
        server = Server(on.client, "mcp/connect")
        await on.declare(declaration("serverId"))
        with trio.fail_after(5):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(ask_to_connect, on, errors)
                await server.asked.wait()
                await ask_to_connect(on, errors)
                assert errors == [-32600]  # what is opening counts
                await on.client.request("session/close", {"sessionId": "session-1"})
            await server.withdrawn.wait()
    assert errors == [-32600, -32603]
