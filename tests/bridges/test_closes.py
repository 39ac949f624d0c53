"""A close in any state of a connection leaves no state; the next connection works."""

from __future__ import annotations

import itertools
from contextlib import suppress

import pytest
import trio
from support.bridge_harness import initialize, send, shim, situation
from support.mcp_providers import declaration
from support.raw_json import dumps

from conductor.bridge_api import Limits
from conductor.errors import ConnectionClosed, RequestError

STEPS = ["started", "connecting", "opening", "idle", "called", "asked", "half a message"]
CLOSERS = ["kill", "stdin", "stdout", "session", "both"]


def closes():
    """Fast: the shim is killed, or the session closed, in each state, and all closers in two."""
    for step, closer in itertools.product(STEPS, CLOSERS):
        is_fast = closer in ("kill", "session") or step in ("idle", "called")
        yield pytest.param(step, closer, marks=() if is_fast else pytest.mark.slow)


@pytest.mark.parametrize(("step", "closer"), list(closes()))
async def test_a_close_at_any_point_leaves_nothing(step, closer):
    numbers = itertools.count(1)
    reached = trio.Event()

    async def wait():
        reached.set()
        await trio.sleep_forever()

    async def ask(params):
        """A request of the server's is answered with an error when its connection closes."""
        with suppress(RequestError, ConnectionClosed):
            await on.client.request("mcp/message", params)

    async def connect(params):
        if step == "connecting":
            await wait()
        return {"connectionId": f"c{next(numbers)}"}

    async def message(params):
        method = params["method"]
        if (method, step) in (("initialize", "opening"), ("tools/call", "called")):
            await wait()
        if (method, step) == ("tools/call", "asked"):
            asked = {"connectionId": params["connectionId"], "method": "elicitation/create"}
            on.client.start_soon(ask, {**asked, "params": {}})
            await wait()
        return {}

    handlers = {"session/close": lambda params: {}}
    async with situation(handlers=handlers) as on:
        on.client.handlers["mcp/connect"] = connect
        on.client.handlers["mcp/message"] = message
        on.client.handlers["mcp/disconnect"] = lambda params: {}
        [entry] = await on.declare()
        async with shim(entry) as process:
            with trio.fail_after(10):
                await on.until(lambda: bool(on.bridge._shims.shims))
                if step in ("connecting", "opening"):
                    await send(process, 0, "initialize")
                    await reached.wait()
                elif step != "started":
                    await initialize(process)
                if step in ("called", "asked"):
                    await send(process, 1, "tools/call", {"name": "x"})
                    await reached.wait()
                elif step == "half a message":
                    await process.stdin.send_all(b'{"jsonrpc":"2.0","id":9,"meth')
                if closer in ("kill", "both"):
                    process.kill()
                if closer in ("session", "both"):
                    await on.client.request("session/close", {"sessionId": "session-1"})
                if closer == "stdin":
                    await process.stdin.aclose()
                if closer == "stdout":
                    await process.stdout.aclose()
                await on.until(lambda: not on.bridge._shims.shims)
                await process.wait()
        if closer != "session" and closer != "both":
            await on.client.request("session/close", {"sessionId": "session-1"})

        bridge = on.bridge
        await on.until(lambda: not bridge.connections or step == "connecting")
        assert not any((bridge.exchanges, bridge._sessions))
        assert not any((bridge._rewriter.shim_listener._tokens, bridge._rewriter.servers))

        step = "next"
        [entry] = await on.declare(declaration("serverId", id="server-2"))
        async with shim(entry) as process:
            assert "result" in await initialize(process)


async def test_connections_to_one_server_are_limited():
    async with situation() as on:
        on.bridge.limits = Limits(max_mcp_connections=2)
        [entry] = await on.declare()
        async with shim(entry) as one, shim(entry) as two:
            await initialize(one)
            await initialize(two)
            async with shim(entry) as three:
                with trio.fail_after(5):
                    assert await three.wait() == 0
            one.kill()
            await on.until(lambda: len(on.bridge._shims.shims) == 1)
            async with shim(entry) as four:
                assert "result" in await initialize(four)


async def test_a_connection_id_in_use_is_not_taken_over():
    """A server must not get what is meant for another one."""
    async with situation() as on:
        on.client.handlers["mcp/connect"] = lambda params: {"connectionId": "same"}
        on.client.handlers["mcp/message"] = lambda params: {}
        on.client.handlers["mcp/disconnect"] = lambda params: {}
        [first], [second] = await on.declare(), await on.declare()
        async with shim(first) as one:
            assert "result" in await initialize(one)
            async with shim(second) as two:  # not before: a shim connects when it starts
                answer = await initialize(two)
                assert answer["error"]["message"] == "mcp/connect returned a connectionId in use"
                two.kill()
                await on.until(lambda: len(on.bridge._shims.shims) == 1)
                assert list(on.bridge.connections) == ["same"]


@pytest.mark.parametrize("id", ["\ud83d", "\x00", "", "s" * 100_000])
async def test_odd_ids_of_servers_and_sessions(id):
    """Half an emoji is JSON, and msgspec writes none."""
    handlers = {
        "session/new": lambda params: {"sessionId": id},
        "initialize": lambda params: {
            "protocolVersion": 1,
            "agentCapabilities": {},
            "agentInfo": {"name": id},
        },
    }
    async with situation(handlers=handlers) as on:
        on.client.handlers["mcp/connect"] = lambda params: {"connectionId": "c"}
        on.client.handlers["mcp/message"] = lambda params: {}
        on.client.handlers["mcp/disconnect"] = lambda params: {}
        params = b'{"cwd":"/","mcpServers":[{"type":"acp","name":%b,"serverId":%b}]}'
        text = dumps(id)
        await on.client.request("session/new", params % (text, text))
        [entry] = on.given()
        async with shim(entry) as process:
            assert "result" in await initialize(process)


async def test_an_agent_that_gives_two_sessions_one_id_keeps_no_tokens():
    async with situation(handlers={"session/new": lambda params: {"sessionId": "same"}}) as on:
        for _ in range(20):
            await on.declare()
        assert len(on.bridge._rewriter.shim_listener._tokens) == 1
        assert len(on.bridge._sessions["same"]) == 1
