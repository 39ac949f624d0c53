"""The other direction: a server on the web for an agent that takes only stdio."""

from __future__ import annotations

import json
from contextlib import asynccontextmanager

import pytest
import trio
from hypercorn.config import Config
from hypercorn.trio import serve
from support.bridge_harness import (
    initialize,
    mcp_client,
    receive,
    receive_all,
    request,
    send,
    shim,
    situation,
)
from support.mcp_providers import toolbox
from support.raw_json import dumps
from trio.testing import wait_all_tasks_blocked

from conductor.limits import Limits

PAIRS = [("legacy", "http"), ("auto", "http"), ("legacy", "sse"), ("auto", "sse")]


@pytest.fixture
async def web(nursery):
    """The toolbox on loopback, and its requests: (path, authorization)."""
    asked = []

    async def start(kind):
        server = toolbox()
        app = server.streamable_http_app() if kind == "http" else server.sse_app()

        async def noting(scope, receive, send):
            if scope["type"] == "http":
                headers = dict(scope["headers"])
                asked.append((scope["path"], headers.get(b"authorization")))
            await app(scope, receive, send)

        config = Config()
        config.bind = ["127.0.0.1:0"]
        config.accesslog = config.errorlog = None
        config.graceful_timeout = 0.1
        [origin] = await nursery.start(serve, noting, config)
        return origin + ("/mcp" if kind == "http" else "/sse")

    yield start, asked
    nursery.cancel_scope.cancel()


@pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::DeprecationWarning")
@pytest.mark.parametrize(("mode", "kind"), PAIRS)
async def test_a_server_on_the_web_reaches_an_agent_that_takes_stdio(web, mode, kind):
    start, asked = web
    with trio.fail_after(10):
        url = await start(kind)
        secret = {"name": "Authorization", "value": "Bearer secret"}
        declared = {"type": kind, "name": "web", "url": url, "headers": [secret]}
        async with situation() as on:
            [entry] = await on.declare(declared)
            async with mcp_client(entry, mode=mode) as client:
                result = await client.call_tool("add", {"a": 2, "b": 3})

    assert entry["name"] == "web"
    assert "secret" not in str(entry)
    assert result.structured_content == {"result": 5}
    assert {authorization for _, authorization in asked} == {b"Bearer secret"}


async def test_an_agent_that_takes_http_gets_it_unchanged():
    capabilities = {"mcpCapabilities": {"http": True, "sse": True}}
    declared = {"type": "http", "name": "web", "url": "http://127.0.0.1:9/", "headers": []}
    async with situation(capabilities=capabilities) as on:
        assert await on.declare(declared) == [declared]


@pytest.mark.filterwarnings("ignore::ResourceWarning")
async def test_a_server_that_cannot_be_reached_is_a_clear_error():
    declared = {"type": "http", "name": "web", "url": "http://127.0.0.1:9/", "headers": []}
    with trio.fail_after(10):
        async with situation() as on:
            [entry] = await on.declare(declared)
            async with shim(entry) as process:
                answer = await initialize(process)
                again = await request(process, 1, "ping")
    assert "error" in answer
    assert "error" in again


@pytest.mark.filterwarnings("ignore::ResourceWarning")
async def test_an_answer_over_the_limit_is_an_error_for_the_agent(nursery):
    async def long(scope, receive, send):
        if scope["type"] != "http":
            raise NotImplementedError  # as ASGI says that it does not care for its lifespan
        start = {"status": 200, "headers": [(b"content-type", b"application/json")]}
        await send({"type": "http.response.start", **start})
        await send({"type": "http.response.body", "body": bytes(200_000)})

    config = Config()
    config.bind = ["127.0.0.1:0"]
    config.accesslog = config.errorlog = None
    [origin] = await nursery.start(serve, long, config)
    declared = {"type": "http", "name": "web", "url": origin, "headers": []}
    with trio.fail_after(10):
        async with situation(limits=Limits(max_message_bytes=100_000)) as on:
            [entry] = await on.declare(declared)
            async with shim(entry) as process:
                answer = await initialize(process)
    nursery.cancel_scope.cancel()
    assert answer["error"]["message"] == "The MCP server cannot be reached"


@asynccontextmanager
async def flooded(message, limits):
    """The shim of a server that sends a message 1000 times, and the numbers of those sent."""
    sent = []

    async def flooding(scope, read, write):
        if scope["type"] != "http":
            raise NotImplementedError
        asked = (await read()).get("body")
        called = json.loads(asked) if asked else {}
        start = {"type": "http.response.start", "status": 200, "headers": []}
        part = {"type": "http.response.body", "more_body": True}
        if "id" in called:
            server = {"name": "flooding", "version": "1"}
            about = {"protocolVersion": "2025-11-25", "capabilities": {}, "serverInfo": server}
            start["headers"] = [(b"content-type", b"application/json"), (b"mcp-session-id", b"s")]
            await write(start)
            answer = {"jsonrpc": "2.0", "id": called["id"], "result": about}
            await write({**part, "more_body": False, "body": dumps(answer)})
        elif scope["method"] == "GET":
            start["headers"] = [(b"content-type", b"text/event-stream")]
            await write(start)
            for number in range(1000):
                event = dumps({"jsonrpc": "2.0", **message, "id": number})
                await write({**part, "body": b"data: %b\n\n" % event})
                sent.append(number)
        else:
            await write({**start, "status": 202})
            await write({**part, "more_body": False})

    config = Config()
    config.bind = ["127.0.0.1:0"]
    config.accesslog = config.errorlog = None
    async with trio.open_nursery() as nursery:
        [origin] = await nursery.start(serve, flooding, config)
        declared = {"type": "http", "name": "web", "url": origin, "headers": []}
        with trio.fail_after(20):
            async with situation(limits=limits) as on:
                [entry] = await on.declare(declared)
                async with shim(entry) as process:
                    await initialize(process)
                    yield process, sent
        nursery.cancel_scope.cancel()


@pytest.mark.filterwarnings("ignore::ResourceWarning")
async def test_a_server_is_not_read_while_the_agent_does_not_read():
    asks = {"method": "elicitation/create", "params": {"message": "x" * 100_000}}
    async with flooded(asks, Limits()) as (_, sent):
        while not sent:
            await trio.lowlevel.checkpoint()
        await wait_all_tasks_blocked(0.1)

        assert len(sent) < 500


@pytest.mark.filterwarnings("ignore::ResourceWarning")
async def test_a_server_that_asks_without_end_is_left():
    async with flooded({"method": "ping"}, Limits(max_open_requests=5)) as (process, _):
        came = await receive_all(process, 5)
        await send(process, 1, "tools/list")
        answer = await receive(process)

    assert [each["method"] for each in came] == ["ping"] * 5
    assert answer["error"]["message"] == "The MCP server cannot be reached"
