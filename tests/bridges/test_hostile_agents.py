"""Misbehaving MCP clients of agents: other clients and memory are not affected."""

from __future__ import annotations

import json
from contextlib import asynccontextmanager, suppress

import pytest
import trio
from support.bridge_harness import initialize, request, send, shim, situation
from support.raw_json import compact, dumps

from conductor.errors import RequestError

MEGABYTE = 1024 * 1024
DEPTHS = range(920, 990, 2)
"""At a few of them a message can be decoded in one place and not in another."""


DEEP = (
    b'{"jsonrpc":"2.0","id":1,"method":"initialize","params":%b}',
    b'{"jsonrpc":"2.0","id":2,"method":"server/discover","params":{"_meta":%b}}',
    b'{"jsonrpc":"2.0","id":3,"method":"ping","params":%b}',
    b'{"jsonrpc":"2.0","method":"notifications/cancelled","params":%b}',
    b'{"jsonrpc":"2.0","method":"notifications/x","params":%b}',
)


def nested(depth: int) -> bytes:
    return b'{"a":' * depth + b"1" + b"}" * depth


async def answered(process: trio.Process, id: int) -> bool:
    """Read until the answer to this request."""
    rest = b""
    with trio.fail_after(5):
        while True:
            *lines, rest = (rest + await process.stdout.receive_some()).split(b"\n")
            if any(json.loads(line).get("id") == id for line in lines if len(line) < 500):
                return True


@pytest.mark.parametrize("binding", ["serverId", "stateless"])
@pytest.mark.parametrize(
    "depths",
    [DEPTHS[5::15], pytest.param(DEPTHS, marks=pytest.mark.slow)],
    ids=["some depths", "all depths"],
)
async def test_deep_nesting_is_the_failure_of_one_message(binding, depths):
    found = {"supportedVersions": ["2026-07-28"], "capabilities": {}}
    outcome = found if binding == "serverId" else {"result": found}
    async with situation(binding) as on:
        on.client.handlers["mcp/message"] = lambda params: outcome
        [one], [other] = await on.declare(), await on.declare()
        async with shim(other) as flat:
            assert "result" in await initialize(flat)
            for depth in depths:
                async with shim(one) as deep:
                    await on.until(lambda: len(on.bridge._shims.shims) == 2)
                    for text in DEEP:
                        await deep.stdin.send_all(text % nested(depth) + b"\n")
                    await deep.stdin.aclose()
                    assert await deep.wait() == 0  # the bridge has read all of it
                assert "result" in await request(flat, 7, "ping")
            async with shim(one) as again:
                assert "result" in await initialize(again)


async def test_deep_nesting_of_a_server_is_the_failure_of_one_message():
    deep = nested(940)

    def message(params):
        if params["method"] == "deep":
            return {"a": json.loads(deep)}
        return {}

    async with situation() as on:
        on.client.handlers["mcp/connect"] = lambda params: {"connectionId": "c"}
        on.client.handlers["mcp/message"] = message
        on.client.handlers["mcp/disconnect"] = lambda params: {}
        [entry] = await on.declare()
        async with shim(entry) as process:
            await initialize(process)
            for depth in DEPTHS:
                carrier = b'{"connectionId":"c","method":"notifications/message","params":%b}'
                on.client.notify("mcp/message", carrier % nested(depth))
                carrier = b'{"connectionId":"c","method":"sampling/createMessage","params":%b}'
                asked = on.client.request("mcp/message", carrier % nested(depth))
                with trio.move_on_after(0), pytest.raises((RequestError, trio.Cancelled)):
                    await asked
            await send(process, 7, "ping")
            assert await answered(process, 7)


async def test_a_shim_is_not_read_before_its_server_is_connected():
    """An agent that writes 1.2 GB in 3 s before `mcp/connect` is answered fills no memory."""
    connected = trio.Event()

    async def connect(params):
        await connected.wait()
        return {"connectionId": "c"}

    async with situation() as on:
        on.client.handlers["mcp/connect"] = connect
        on.client.handlers["mcp/message"] = lambda params: {}
        on.client.handlers["mcp/disconnect"] = lambda params: {}
        [entry] = await on.declare()
        async with shim(entry) as process:
            line = compact({"jsonrpc": "2.0", "method": "notifications/x", "params": {}})
            line = line[:-2] + '"a":"' + "x" * 100_000 + '"}}\n'
            written = 0
            with trio.move_on_after(20) as patience:
                while written < 20 * MEGABYTE:
                    with trio.move_on_after(1) as slow:
                        await process.stdin.send_all(line.encode())
                        written += len(line)
                    if slow.cancelled_caught:
                        break
            assert not patience.cancelled_caught
            [consumer] = on.bridge._shims.shims
            assert consumer.mcp_connection._waiting_bytes < MEGABYTE
            assert written < 3 * MEGABYTE  # the rest is in pipes and sockets

            connected.set()  # and it goes on where it was
            await on.until(lambda: not consumer.mcp_connection.crowded)


async def test_a_shim_that_is_not_read_and_dies_is_noticed():
    async def never(params):
        await trio.sleep_forever()

    async with situation() as on:
        on.client.handlers["mcp/connect"] = never
        [entry] = await on.declare()
        async with shim(entry) as process, trio.open_nursery() as nursery:
            line = b'{"jsonrpc":"2.0","method":"notifications/x","params":{"a":"%b"}}\n'

            async def flood():
                with suppress(trio.BrokenResourceError):
                    while True:
                        await process.stdin.send_all(line % (b"x" * 100_000))

            nursery.start_soon(flood)
            await on.until(
                lambda: any(each.mcp_connection.crowded for each in on.bridge._shims.shims)
            )
            process.kill()
            await on.until(lambda: not on.bridge._shims.shims)
            nursery.cancel_scope.cancel()


async def test_requests_that_a_stateless_server_does_not_take_yet_are_bounded():
    released = trio.Event()

    async def message(params):
        if params["method"] == "tools/call":
            await released.wait()
        return {"result": {"supportedVersions": ["2026-07-28"], "capabilities": {}}}

    async with situation("stateless") as on:
        on.client.handlers["mcp/message"] = message
        [entry] = await on.declare()
        async with shim(entry) as process, trio.open_nursery() as nursery:
            await request(process, 0, "initialize", {})
            count = 200
            params = {"name": "x", "arguments": {"a": "x" * 20_000}}

            async def flood():
                for number in range(1, count + 1):
                    await send(process, number, "tools/call", params)

            async def read():
                record_update = 0
                while record_update < count:
                    record_update += (await process.stdout.receive_some()).count(b"\n")

            nursery.start_soon(flood)
            [consumer] = on.bridge._shims.shims
            await on.until(lambda: consumer.mcp_connection.crowded)
            assert consumer.mcp_connection.provider.waiting_bytes < MEGABYTE
            released.set()
            with trio.fail_after(20):
                await read()
            assert consumer.mcp_connection.provider.waiting_bytes == 0


@asynccontextmanager
async def calls_of_a_stateless_server(
    count: int, released: trio.Event, *, cancellable: bool = True
):
    """A connection whose agent has called a tool `count` times; no call returns before `released`.

    Yields the harness, the agent's end, the connection, and the queue toward the server.
    """

    async def message(params):
        if params["method"] == "tools/call":
            with trio.CancelScope(shield=not cancellable):
                await released.wait()
        return {"result": {"supportedVersions": ["2026-07-28"], "capabilities": {}}}

    async with situation("stateless") as on:
        on.client.handlers["mcp/message"] = message
        [entry] = await on.declare()
        async with shim(entry) as process:
            await request(process, 0, "initialize", {})
            [consumer] = on.bridge._shims.shims
            connection = consumer.mcp_connection
            for number in range(1, count + 1):
                await send(process, number, "tools/call", {"name": "x"})
            yield on, process, connection, connection.provider.server


async def test_requests_of_a_closed_connection_do_not_wait_for_a_stateless_server():
    """The server does not react to the cancellation of those that it has."""
    released = trio.Event()
    async with calls_of_a_stateless_server(199, released, cancellable=False) as called:
        on, process, connection, server = called
        try:
            await on.until(lambda: len(server.waiting) == 135)
            process.kill()
            await on.until(lambda: not on.bridge._shims.shims)
            assert not server.waiting
            assert connection.provider.waiting_bytes == 0
        finally:
            released.set()


async def test_a_cancelled_request_does_not_wait_for_a_stateless_server():
    released = trio.Event()
    async with calls_of_a_stateless_server(66, released) as (on, process, connection, server):
        await on.until(lambda: len(server.waiting) == 2)
        cancelled = {"method": "notifications/cancelled", "params": {"requestId": 65}}
        await process.stdin.send_all(dumps({"jsonrpc": "2.0", **cancelled}) + b"\n")
        await on.until(lambda: len(server.waiting) == 1)
        released.set()
        assert await answered(process, 66)
        assert connection.provider.waiting_bytes == 0


async def test_a_failure_of_one_connection_leaves_the_others_open(monkeypatch):
    """The socket is still served."""
    from bridges.shim_connections import ShimConsumer

    async def fail(*args):
        raise RuntimeError("boom")

    async with situation() as on:
        [one], [other] = await on.declare(), await on.declare()
        with monkeypatch.context() as patch:
            patch.setattr(ShimConsumer, "serve", fail)
            async with shim(one) as process:
                with trio.fail_after(5):
                    assert await process.wait() == 0
        async with shim(other) as process:
            assert "result" in await initialize(process)


async def test_a_message_that_a_translator_cannot_read_is_answered():
    """The server's answer to `server/discover` is not what MCP says."""
    found = {"supportedVersions": ["2026-07-28"], "capabilities": [1], "_meta": 5}
    async with situation("stateless") as on:
        on.client.handlers["mcp/message"] = lambda params: {"result": found}
        [entry] = await on.declare()
        async with shim(entry) as process:
            answer = await request(process, 1, "initialize", {"protocolVersion": "2025-06-18"})
            again = await request(process, 2, "initialize", {"protocolVersion": "2025-06-18"})
    assert "cannot be used" in answer["error"]["message"]
    assert "error" in again


DISCOVERED = {
    "supportedVersions": ["2026-07-28"],
    "capabilities": {"resources": {"subscribe": True}},
    "resultType": "complete",
    "ttlMs": 0,
    "cacheScope": "private",
}


async def test_the_resources_that_a_client_subscribes_to_are_bounded():
    """All are sent with each new one: 600 of 1 kB were 170 MiB."""

    async def message(params):
        if params["method"] == "subscriptions/listen":
            await trio.sleep_forever()
        return {"result": DISCOVERED}

    async with situation("stateless") as on:
        on.client.handlers["mcp/message"] = message
        [entry] = await on.declare()
        async with shim(entry) as process:
            await initialize(process)
            long = {"uri": "x:" + "y" * 140_000}
            first = await request(process, 1, "resources/subscribe", long)
            again = await request(process, 2, "resources/subscribe", long)
            second = await request(process, 3, "resources/subscribe", {"uri": "z" + long["uri"]})
            assert first["result"] == again["result"] == {}
            assert second["error"]["message"] == "Too many resources are subscribed to"


async def test_connections_that_are_opened_again_and_again_leave_no_tasks():
    async def never(params):
        await trio.sleep_forever()

    async with situation() as on:
        on.client.handlers["mcp/connect"] = never
        [entry] = await on.declare()
        before = trio.lowlevel.current_statistics().tasks_living
        address, token = (entry["env"][at]["value"] for at in (0, 1))
        assert address.startswith("unix:")
        shims = on.bridge._shims.shims
        for _ in range(30):
            streams = [await trio.open_unix_socket(address[5:]) for _ in range(10)]
            for stream in streams:
                await stream.send_all(f"{token}\n".encode())
            await on.until(lambda: len(shims) == 10)
            for stream in streams:
                await stream.aclose()
            await on.until(lambda: not shims)
        assert trio.lowlevel.current_statistics().tasks_living - before < 100


async def test_a_server_that_asks_for_nonsense_leaves_nothing_open():
    asked = {"a": {"method": "roots/list"}, "b": {"without": "a method"}}

    async def message(params):
        if params["method"] == "tools/call":
            return {"result": {"resultType": "input_required", "inputRequests": asked}}
        return {"result": DISCOVERED}

    async with situation("stateless") as on:
        on.client.handlers["mcp/message"] = message
        [entry] = await on.declare()
        async with shim(entry) as process:
            await initialize(process)
            answer = await request(process, 1, "tools/call", {"name": "x"})
            assert answer["error"]["message"] == "The MCP message cannot be used"
            [consumer] = on.bridge._shims.shims
            assert not consumer.connection.sent


async def test_a_server_acknowledges_a_subscription_under_one_id():
    async def message(params):
        if params["method"] == "subscriptions/listen":
            route = {name: params[name] for name in ("serverId", "requestId")}
            for number in range(20):
                meta = {"_meta": {"io.modelcontextprotocol/subscriptionId": number}}
                method = "notifications/subscriptions/acknowledged"
                on.client.notify("mcp/message", {**route, "method": method, "params": meta})
            await trio.sleep_forever()
        return {"result": DISCOVERED}

    meta = {
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": {},
    }
    async with situation("stateless") as on:
        on.client.handlers["mcp/message"] = message
        [entry] = await on.declare()
        async with shim(entry) as process:
            assert "result" in await request(process, 1, "server/discover", {"_meta": meta})
            await send(process, 2, "subscriptions/listen", {"notifications": {}, "_meta": meta})
            [consumer] = on.bridge._shims.shims
            await on.until(lambda: consumer.mcp_connection.mode._listening)
            for _ in range(20):
                await trio.testing.wait_all_tasks_blocked()
            assert list(consumer.mcp_connection.mode._listening) == [b"0"]
