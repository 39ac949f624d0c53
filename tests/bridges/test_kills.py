"""One end of a tool call goes away: the others are told, and nothing is left behind."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from contextlib import asynccontextmanager

import pytest
import trio
from hypercorn.config import Config
from hypercorn.trio import serve
from support.bridge_harness import PassingProxy, initialize, receive, request, send, shim, situation
from support.mcp_providers import BINDINGS, Provider, Waiting, declaration

from bridges.bridge import McpBridge
from conductor.testing import FakeAgent, open_chain


@asynccontextmanager
async def waiting_call(entry, waiting):
    """A shim whose request 2 is a tool call that the server has begun to answer."""
    async with shim(entry) as process:
        await initialize(process)
        await send(process, 2, "tools/call", {"name": "wait", "arguments": {}})
        with trio.fail_after(10):
            await waiting.begun.wait()
        yield process


@pytest.mark.parametrize("binding", BINDINGS)
async def test_the_providing_proxy_is_killed(binding):
    waiting = Waiting()
    proxy, agent = PassingProxy(), FakeAgent()
    async with open_chain(proxy, McpBridge(), agent, bridged=False) as client:
        await client.initialize()
        Provider(proxy.endpoint, binding, waiting.server).mount()
        await client.new_session("/work", [declaration(binding)])
        [new] = [h for h in agent.transcript if h.method == "session/new"]
        async with waiting_call(new.params["mcpServers"][0], waiting) as process:
            proxy.hang_up()
            answer = await receive(process)
            status = await ended(process)

    assert answer["id"] == 2
    assert answer["error"]["message"] == "component 'fake-proxy' hung up"
    assert status == 0


@pytest.mark.parametrize("binding", BINDINGS)
async def test_the_agent_is_killed(binding):
    """Its shim outlives it for a moment, as a process whose parent was killed does."""
    waiting = Waiting()
    async with situation(binding, waiting.server) as on:
        [entry] = await on.declare()
        async with waiting_call(entry, waiting) as process:
            on.agent.hang_up()
            with trio.fail_after(5):
                await waiting.cancelled.wait()
            status = await ended(process)

    assert status == 0


@pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::DeprecationWarning")
@pytest.mark.parametrize(
    ("kind", "said"),
    [
        ("http", "SSE stream ended without a response"),  # the SDK's words
        ("sse", "The MCP server cannot be reached"),
    ],
)
async def test_the_web_server_is_killed(kind, said, nursery):
    waiting, scope = Waiting(), trio.CancelScope()
    server = waiting.server()
    app = server.streamable_http_app() if kind == "http" else server.sse_app()
    config = Config()
    config.bind = ["127.0.0.1:0"]
    config.accesslog = config.errorlog = None
    config.graceful_timeout = 0.1

    async def run(task_status):
        with scope:
            await serve(app, config, task_status=task_status)

    [origin] = await nursery.start(run)
    url = origin + ("/mcp" if kind == "http" else "/sse")
    async with situation() as on:
        [entry] = await on.declare({"type": kind, "name": "web", "url": url, "headers": []})
        async with waiting_call(entry, waiting) as process:
            scope.cancel()
            answer = await receive(process)

    assert answer["id"] == 2
    assert answer["error"]["message"] == said


# -- before the connection is there ----------------------------------------------------------------


async def test_a_shim_is_killed_while_its_connection_opens():
    """A connection without a client is closed again."""
    asked, answer, closed = trio.Event(), trio.Event(), []

    async def connect(params):
        asked.set()
        with trio.CancelScope(shield=True):  # it does not care that the request was cancelled
            await answer.wait()
        return {"connectionId": "late"}

    async with situation() as on:
        on.client.handlers["mcp/connect"] = connect
        on.client.handlers["mcp/disconnect"] = closed.append
        [entry] = await on.declare()
        async with shim(entry) as process:
            await asked.wait()
            process.kill()
            await process.wait()
        await on.until(lambda: not on.bridge._sessions["session-1"][0].mcp_connections)
        answer.set()
        await on.until(lambda: closed)
        left = on.bridge.connections

    assert closed == [{"connectionId": "late"}]
    assert left == {}


async def test_the_providing_proxy_is_killed_while_a_connection_opens():
    asked = trio.Event()

    async def connect(params):
        asked.set()
        await trio.sleep_forever()

    proxy, agent, bridge = PassingProxy(handlers={"mcp/connect": connect}), FakeAgent(), McpBridge()
    async with open_chain(proxy, bridge, agent, bridged=False) as client:
        await client.initialize()
        await client.new_session("/work", [declaration("serverId")])
        [new] = [h for h in agent.transcript if h.method == "session/new"]
        async with shim(new.params["mcpServers"][0]) as process:
            await asked.wait()
            await send(process, 1, "initialize")
            [mcp_connection] = bridge._sessions["session-1"][0].mcp_connections
            with trio.fail_after(5):
                while not mcp_connection._waiting:
                    await trio.lowlevel.checkpoint()
            proxy.hang_up()
            answer = await receive(process)
            status = await ended(process)

    assert answer["error"]["message"] == "component 'fake-proxy' hung up"
    assert status == 0


# -- the conductor itself --------------------------------------------------------------------------

AGENT = """
import json, sys
for line in sys.stdin:
    message = json.loads(line)
    result = {
        "initialize": {"protocolVersion": 1, "agentCapabilities": {}},
        "session/new": {"sessionId": "s", "_meta": {"given": message["params"].get("mcpServers")}},
    }.get(message.get("method"))
    answer = {"jsonrpc": "2.0", "id": message["id"], "result": result}
    print(json.dumps(answer, separators=(",", ":")), flush=True)
"""
"""Reports its declarations and starts no shim: the test does."""


async def test_the_conductor_is_killed(tmp_path):
    """The shim ends. The socket's directory stays; `ps` clears it away."""
    agent = tmp_path / "agent.py"
    agent.write_text(AGENT)
    argv = [sys.executable, "-m", "conductor", "agent", f"{sys.executable} {agent}"]
    env = {"PATH": "/usr/bin", "TMPDIR": str(tmp_path)}
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
    with trio.fail_after(20):
        conductor = await trio.lowlevel.open_process(argv, env=env, **pipes)
        async with conductor.stdin, conductor.stdout:
            hello = {"protocolVersion": 1, "clientCapabilities": {}}
            await request(conductor, 1, "initialize", hello)
            params = {"cwd": "/", "mcpServers": [declaration("serverId")]}
            answer = await request(conductor, 2, "session/new", params)
            [entry] = answer["result"]["_meta"]["given"]
            async with shim(entry) as process:
                await send(process, 1, "initialize")
                await receive_request(conductor, "mcp/connect")
                conductor.send_signal(signal.SIGKILL)
                await conductor.wait()
                status = await ended(process)

    assert status == 0
    assert len([*tmp_path.glob("acp-mcp-*")]) == 1


async def ended(process):
    with trio.fail_after(10):
        return await process.wait()


async def receive_request(process, method):
    buffer = b""
    while f'"{method}"'.encode() not in buffer:
        chunk = await process.stdout.receive_some()
        assert chunk, "the conductor ended"
        buffer += chunk
    return json.loads(buffer.splitlines()[-1])
