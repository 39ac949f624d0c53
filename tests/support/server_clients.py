"""A server in this process, on real sockets, and the clients that tests talk to it with."""

from __future__ import annotations

import json
import math
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import attrs
import httpx2
import trio
import trio_websocket

from conductor.background_tasks import background_tasks
from conductor.chain.reloadable_chain import ReloadableChain
from conductor.chainfile import load
from conductor.cli.chain_run import forget_plugin_files
from conductor.server.access import AccessPolicy
from conductor.server.limits import ServerLimits, ServerTimeouts
from conductor.server.listen.address import TcpAddress
from conductor.server.run import (
    CurrentChain,
    RunningServer,
    ServerSettings,
    chain_factory,
    open_server,
)
from support.no_authorities import NO_AUTHORITIES
from support.raw_json import compact

PATIENCE = 30.0
"""Seconds; only a hang takes that long."""

CHAIN = "version: 1\nagent: {use: test-agent, with: {session_ids: counted}}\n"


@asynccontextmanager
async def serving(directory: Path, /, **settings: Any) -> AsyncIterator[RunningServer]:
    """A server of the test agent; `limits` and `timeouts` are the fields that differ."""
    path = directory / "chain.yaml"
    path.write_text(settings.pop("chain", CHAIN))
    limits = ServerLimits(**settings.pop("limits", {}))
    timeouts = ServerTimeouts(**settings.pop("timeouts", {}))
    listen = settings.pop("listen", (TcpAddress("127.0.0.1", 0),))
    access = settings.pop("access", AccessPolicy())
    made = ServerSettings(listen, access, limits=limits, timeouts=timeouts, **settings)
    with trio.fail_after(3 * PATIENCE):
        current = CurrentChain(
            ReloadableChain(load(path), partial(load, path), forget_plugin_files)
        )
        async with open_server(chain_factory(current), made) as server:
            yield server


@asynccontextmanager
async def http(
    server: RunningServer, version: int = 2, **options: Any
) -> AsyncIterator[httpx2.AsyncClient]:
    """An HTTP client that speaks one version of it, whose URLs are below the server's."""
    url = server.addresses[0].removesuffix("/acp")
    options.setdefault("verify", NO_AUTHORITIES)
    async with httpx2.AsyncClient(
        base_url=url, http1=version == 1, http2=version == 2, timeout=PATIENCE, **options
    ) as client:
        yield client


@asynccontextmanager
async def websocket(
    server: RunningServer, *headers: tuple[str, str], path: str = "/acp", **options: Any
) -> AsyncIterator[trio_websocket.WebSocketConnection]:
    """A WebSocket of the server."""
    url = server.addresses[0].replace("http", "ws", 1).removesuffix("/acp") + path
    extra = [(name.encode(), value.encode()) for name, value in headers]
    async with trio_websocket.open_websocket_url(url, extra_headers=extra, **options) as socket:
        try:
            yield socket
        finally:
            if socket.closed:  # by the server: then trio-websocket leaves the rest to the collector
                await socket._stream.aclose()


async def connect(server: RunningServer, *, receive_buffer: int | None = None) -> trio.SocketStream:
    """A TCP connection, of which the kernel reads no more ahead than `receive_buffer`."""
    socket = trio.socket.socket()
    if receive_buffer is not None:
        socket.setsockopt(trio.socket.SOL_SOCKET, trio.socket.SO_RCVBUF, receive_buffer)
    await socket.connect(("127.0.0.1", port_of(server)))
    return trio.SocketStream(socket)


def port_of(server: RunningServer) -> int:
    return int(server.addresses[0].rpartition(":")[2].removesuffix("/acp"))


async def upgrade(
    server: RunningServer, path: str = "/acp", *, receive_buffer: int | None = None, **headers: str
) -> trio.SocketStream:
    """A TCP connection on which an upgrade to a WebSocket was asked for."""
    named = {
        "Host": "localhost",
        "Connection": "Upgrade",
        "Upgrade": "websocket",
        "Sec-WebSocket-Version": "13",
        "Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ==",
        **headers,
    }
    lines = [f"GET {path} HTTP/1.1", *(f"{name}: {value}" for name, value in named.items())]
    stream = await connect(server, receive_buffer=receive_buffer)
    await stream.send_all("\r\n".join([*lines, "", ""]).encode())
    return stream


async def refusal(server: RunningServer, path: str = "/acp", **headers: str) -> tuple[int, str]:
    """The status and the text that an upgrade is refused with."""
    async with await upgrade(server, path, **headers) as stream:
        answer = b"".join([chunk async for chunk in stream])
    head, _, body = answer.partition(b"\r\n\r\n")
    return int(head.split()[1]), body.decode()


def request(id: Any, method: str, **params: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": id, "method": method, "params": params}


def initialize(id: Any = 0) -> dict[str, Any]:
    return request(id, "initialize", protocolVersion=1, clientCapabilities={})


def new_session(id: Any) -> dict[str, Any]:
    return request(id, "session/new", cwd="/", mcpServers=[])


def prompt(id: Any, session: str, text: str) -> dict[str, Any]:
    return request(id, "session/prompt", sessionId=session, prompt=[{"type": "text", "text": text}])


async def ask(socket: trio_websocket.WebSocketConnection, message: dict[str, Any]) -> Any:
    """Send a request, and return its answer; what comes before it is dropped."""
    await socket.send_message(compact(message))
    while True:
        got = json.loads(await socket.get_message())
        if got.get("id") == message["id"] and "method" not in got:
            return got


@attrs.define(eq=False)
class Remote:
    """An initialized connection over Streamable HTTP."""

    client: httpx2.AsyncClient
    id: str
    reconnect: Callable[[], AbstractAsyncContextManager[httpx2.AsyncClient]]

    @classmethod
    async def open(
        cls, server: RunningServer, client: httpx2.AsyncClient, version: int = 2
    ) -> Remote:
        response = await client.post("/acp", json=initialize())
        assert response.status_code == 200
        return cls(client, response.headers["acp-connection-id"], partial(http, server, version))

    def headers(self, session: str | None = None, **more: str) -> dict[str, str]:
        named = {} if session is None else {"acp-session-id": session}
        return {"acp-connection-id": self.id, **named, **more}

    async def post(self, message: Any, session: str | None = None) -> httpx2.Response:
        headers = self.headers(session, **{"content-type": "application/json"})
        # Not as `json=`: httpx writes no lone surrogates.
        return await self.client.post("/acp", content=compact(message), headers=headers)

    @asynccontextmanager
    async def stream(
        self, session: str | None = None
    ) -> AsyncIterator[trio.MemoryReceiveChannel[Any]]:
        """The messages of a stream, for as long as the block lasts."""
        headers = self.headers(session, accept="text/event-stream")
        # By a TCP connection of its own: httpx tells no server that a stream is not read any more.
        async with (
            self.reconnect() as client,
            client.stream("GET", "/acp", headers=headers) as response,
        ):
            assert response.status_code == 200, response.status_code
            sender, receiver = trio.open_memory_channel[Any](math.inf)
            async with background_tasks() as nursery:
                nursery.start_soon(_read, response, sender)
                yield receiver

    async def get(self, session: str | None = None, accept: str = "text/event-stream") -> int:
        """The status that a stream is answered with."""
        headers = self.headers(session, accept=accept)
        async with (
            self.reconnect() as client,
            client.stream("GET", "/acp", headers=headers) as response,
        ):
            return response.status_code

    async def new_session(self) -> str:
        async with self.stream() as messages:
            assert (await self.post(new_session(1))).status_code == 202
            answer = await anext(messages)
        session: str = answer["result"]["sessionId"]
        return session


async def _read(response: httpx2.Response, sender: trio.MemorySendChannel[Any]) -> None:
    with sender:
        async for line in response.aiter_lines():
            if line.startswith("data: "):
                sender.send_nowait(json.loads(line.removeprefix("data: ")))


def texts(messages: list[Any]) -> Iterator[str]:
    """What the agent said."""
    for message in messages:
        update = message.get("params", {}).get("update", {})
        if update.get("sessionUpdate") == "agent_message_chunk":
            yield update["content"]["text"]
