"""A chain with the bridge in it: a fake client that provides a server, a fake agent."""

from __future__ import annotations

import functools
import inspect
import json
import subprocess
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any, Literal

import attrs
import trio
from mcp import Client, StdioServerParameters
from mcp.client.stdio import stdio_client

from bridges.bridge import McpBridge
from conductor.limits import Limits
from conductor.peer import MessageHandler
from conductor.testing import FakeAgent, FakeClient, open_chain
from conductor.testing.fakes import FakeComponent
from support.mcp_providers import Binding, Provider, declaration, toolbox
from support.raw_json import dumps


@attrs.define(eq=False)
class Situation:
    client: FakeClient
    agent: FakeAgent
    bridge: McpBridge
    provider: Provider

    async def declare(self, *declarations: Mapping[str, Any]) -> list[dict[str, Any]]:
        """Open a session with these servers (or the provider's); return what the agent got."""
        if not declarations:
            declarations = (declaration(self.provider.binding),)
        await self.client.new_session("/work", list(declarations))
        return self.given()

    async def until(self, true: Callable[[], bool]) -> None:
        """Wait until a condition holds; check it again after each change."""
        with trio.fail_after(5):
            while not true():
                await trio.lowlevel.checkpoint()

    def given(self) -> list[dict[str, Any]]:
        """The servers of the session set-up that the agent saw last."""
        return [h for h in self.agent.transcript if h.kind == "request"][-1].params["mcpServers"]


@attrs.define(eq=False)
class PassingProxy(FakeComponent):
    """A proxy on a connection that passes set-ups to the agent, and requests of the agent to the
    client unless it has a handler for them."""

    handlers: dict[str, MessageHandler] = attrs.field(factory=dict)
    name: str = attrs.field(default="fake-proxy", kw_only=True)
    role: Literal["proxy", "agent"] = attrs.field(default="proxy", init=False)

    def __attrs_post_init__(self) -> None:
        self.handlers |= {
            "proxy/initialize": functools.partial(self._to_agent, "initialize"),
            "session/new": functools.partial(self._to_agent, "session/new"),
            "proxy/successor": self._of_agent,
        }

    async def _to_agent(self, method: str, params: Any) -> Any:
        return await self.endpoint.request("proxy/successor", {"method": method, "params": params})

    async def _of_agent(self, envelope: Any) -> Any:
        method, params = envelope["method"], envelope.get("params")
        if (handler := self.handlers.get(method)) is None:
            return await self.endpoint.request(method, params)
        result = handler(params)
        return await result if inspect.isawaitable(result) else result


@asynccontextmanager
async def situation(
    binding: Binding = "serverId",
    make: Callable[[], Any] = toolbox,
    *,
    era: Any = "both",
    capabilities: Mapping[str, Any] | None = None,
    mode: Any = "auto",
    handlers: Mapping[str, Any] | None = None,
    limits: Limits | None = None,
    **options: Any,
) -> AsyncIterator[Situation]:
    """`options`: more of the bridge."""
    bridge = McpBridge(mode, **options)
    bridge.limits = limits or Limits()
    agent = FakeAgent(capabilities=capabilities or {}, handlers=dict(handlers or {}))
    async with open_chain(bridge, agent, bridged=False) as client:
        provider = Provider(client, binding, make, era=era).mount()
        await client.initialize()
        yield Situation(client, agent, bridge, provider)


def started_with(entry: Mapping[str, Any]) -> StdioServerParameters:
    """How an MCP client starts the stdio server that the agent was given."""
    return StdioServerParameters(
        command=entry["command"],
        args=entry["args"],
        env={one["name"]: one["value"] for one in entry["env"]},
    )


@asynccontextmanager
async def shim(entry: Mapping[str, Any]) -> AsyncIterator[trio.Process]:
    """A shim started as by an agent, with plain pipes."""
    env = {one["name"]: one["value"] for one in entry["env"]}
    process: trio.Process
    async with trio.open_nursery() as nursery:
        start = functools.partial(
            trio.run_process,
            [entry["command"], *entry["args"]],
            env=env,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            check=False,
        )
        process = await nursery.start(start)
        try:
            yield process
        finally:
            nursery.cancel_scope.cancel()


async def send(process: trio.Process, id: int, method: str, params: Any = None) -> None:
    message = {"jsonrpc": "2.0", "id": id, "method": method, "params": params or {}}
    await process.stdin.send_all(dumps(message) + b"\n")


async def receive(process: trio.Process) -> Any:
    """The next message; there must be only one."""
    chunks = [b""]
    with trio.fail_after(20):
        while not chunks[-1].endswith(b"\n"):
            chunks.append(await process.stdout.receive_some())
            assert chunks[-1], "the shim ended"
    return json.loads(b"".join(chunks))


async def receive_all(process: trio.Process, count: int) -> list[Any]:
    """The next `count` messages."""
    found: list[Any] = []
    rest = b""
    with trio.fail_after(5):
        while len(found) < count:
            *lines, rest = (rest + await process.stdout.receive_some()).split(b"\n")
            found += [json.loads(line) for line in lines]
    return found


async def request(process: trio.Process, id: int, method: str, params: Any = None) -> Any:
    """Send a request, and return what comes next, which should be its answer."""
    await send(process, id, method, params)
    return await receive(process)


async def initialize(
    process: trio.Process, version: str = "2025-11-25", capabilities: Any = None
) -> Any:
    hello = {
        "protocolVersion": version,
        "capabilities": capabilities or {},
        "clientInfo": {"name": "test", "version": "1"},
    }
    answer = await request(process, 0, "initialize", hello)
    if "error" in answer:
        return answer  # the shim of a server that did not start ends, and reads nothing more
    note = {"jsonrpc": "2.0", "method": "notifications/initialized"}
    await process.stdin.send_all(dumps(note) + b"\n")
    return answer


def mcp_client(entry: Mapping[str, Any], **options: Any) -> Client:
    """The SDK's client, on a really spawned shim."""
    return Client(stdio_client(started_with(entry)), **options)
