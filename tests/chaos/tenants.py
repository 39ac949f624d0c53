"""Clients of one server for the growth test: WebSocket and HTTP clients, polite and hostile.

Every function opens a connection of its own, does what its name says, and leaves. `KINDS` are
ordinary clients; `ATTACKS` stay within what any client can send, and a server must survive them
without growing and without hurting other tenants.
"""

from __future__ import annotations

import json
import random
import struct
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any
from urllib.parse import urlsplit

import attrs
import httpx2
import trio
import trio_websocket

__all__ = ["ATTACKS", "KINDS", "Tenant", "open_session", "prompt_over"]

PATIENCE = 60.0
"""Seconds; only a hanging server takes that long."""
GONE = (
    trio_websocket.ConnectionClosed,
    trio_websocket.HandshakeError,
    httpx2.HTTPError,
    trio.BrokenResourceError,
    trio.ClosedResourceError,
    OSError,
)
"""How a client notices that the server has refused it or ended the connection."""


@attrs.frozen
class Tenant:
    """A principal of the server, and a seeded source of variety."""

    url: str
    token: str
    random: random.Random

    @property
    def authorization(self) -> dict[str, str]:
        return {"authorization": f"Bearer {self.token}"}

    def websocket(self) -> Any:
        url = self.url.replace("http", "ws", 1)
        headers = [(name.encode(), value.encode()) for name, value in self.authorization.items()]
        return trio_websocket.open_websocket_url(
            url,
            extra_headers=headers,
            max_message_size=2**26,
            message_queue_size=100,  # a client that leaves while its queue is full waits for ever
            disconnect_timeout=5,
        )

    def http(self) -> httpx2.AsyncClient:
        return httpx2.AsyncClient(
            headers=self.authorization, http1=False, http2=True, timeout=PATIENCE
        )


def request(id: int, method: str, **params: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": id, "method": method, "params": params}


def initialize() -> dict[str, Any]:
    return request(0, "initialize", protocolVersion=1, clientCapabilities={})


def prompt(id: int, session: str, text: str) -> dict[str, Any]:
    return request(id, "session/prompt", sessionId=session, prompt=[{"type": "text", "text": text}])


async def ask(socket: Any, message: dict[str, Any]) -> Any:
    """Send a request and return its answer; earlier messages are dropped."""
    await socket.send_message(json.dumps(message))
    while True:
        got = json.loads(await socket.get_message())
        if got.get("id") == message["id"] and "method" not in got:
            return got


async def open_session(socket: Any) -> str:
    await ask(socket, initialize())
    answer = await ask(socket, request(1, "session/new", cwd="/", mcpServers=[]))
    session: str = answer["result"]["sessionId"]
    return session


async def prompt_over(socket: Any, session: str, number: int, text: str) -> Any:
    return await ask(socket, prompt(number, session, text))


# -- ordinary clients ------------------------------------------------------------------------------


async def websocket_polite(tenant: Tenant) -> None:
    """Several sessions, a prompt in each, some closed, and a goodbye."""
    async with tenant.websocket() as socket:
        session = await open_session(socket)
        for number in range(10, 10 + tenant.random.randrange(1, 6)):
            made = await ask(socket, request(number, "session/new", cwd="/", mcpServers=[]))
            await prompt_over(socket, made["result"]["sessionId"], number + 100, "echo hello")
            if number % 2:
                close = {"sessionId": made["result"]["sessionId"]}
                await ask(socket, request(number + 200, "session/close", **close))
        await prompt_over(socket, session, 9, "stream 20 200")


async def websocket_cut(tenant: Tenant) -> None:
    """Cut in the middle of a turn, without a word."""
    async with tenant.websocket() as socket:
        session = await open_session(socket)
        await socket.send_message(json.dumps(prompt(2, session, "wait")))
        with suppress(*GONE):
            await socket._stream.aclose()


async def websocket_agent_dies(tenant: Tenant) -> None:
    """The agent dies in a turn and is restarted."""
    async with tenant.websocket() as socket:
        session = await open_session(socket)
        await prompt_over(socket, session, 2, "die 1")
        again = await ask(socket, request(3, "session/new", cwd="/", mcpServers=[]))
        if "result" in again:
            await prompt_over(socket, again["result"]["sessionId"], 4, "echo hello")


async def http_sessions(tenant: Tenant) -> None:
    """Sessions with a stream each, then DELETE."""
    await _http(tenant, sessions=tenant.random.randrange(1, 4), end="delete")


async def http_abandoned(tenant: Tenant) -> None:
    """A connection over HTTP that is opened and never spoken of again."""
    await _http(tenant, sessions=1, end="abandon")


async def _http(tenant: Tenant, *, sessions: int, end: str) -> None:
    async with tenant.http() as client, trio.open_nursery() as nursery:
        opened = await client.post(tenant.url, json=initialize())
        headers = {"acp-connection-id": opened.headers["acp-connection-id"]}
        answers, told = trio.open_memory_channel[Any](1000)
        nursery.start_soon(_read_stream, tenant, headers, answers)
        for number in range(1, sessions + 1):
            new = request(number, "session/new", cwd="/", mcpServers=[])
            await client.post(tenant.url, json=new, headers=headers)
            session = await _answer(told, number)
            named = {**headers, "acp-session-id": session["result"]["sessionId"]}
            record_activity, said = trio.open_memory_channel[Any](1000)
            nursery.start_soon(_read_stream, tenant, named, record_activity)
            text = prompt(number + 100, session["result"]["sessionId"], "echo hello")
            await client.post(tenant.url, json=text, headers=named)
            await _answer(said, number + 100)
        if end == "delete":
            await client.delete(tenant.url, headers=headers)
        nursery.cancel_scope.cancel()


async def _answer(messages: trio.MemoryReceiveChannel[Any], number: int) -> Any:
    async for message in messages:
        if message.get("id") == number and "method" not in message:
            return message
    raise AssertionError(f"the stream ended before the answer to {number}")


async def _read_stream(
    tenant: Tenant, headers: dict[str, str], messages: trio.MemorySendChannel[Any]
) -> None:
    """Over a connection of its own: httpcore delays what arrives for one of several streams."""
    accept = {**headers, "accept": "text/event-stream"}
    with suppress(*GONE), messages:
        async with (
            tenant.http() as client,
            client.stream("GET", tenant.url, headers=accept, timeout=None) as response,
        ):
            async for line in response.aiter_lines():
                if line.startswith("data: "):
                    await messages.send(json.loads(line.removeprefix("data: ")))


# -- attacks ---------------------------------------------------------------------------------------


async def newlines(tenant: Tenant) -> None:
    """A megabyte of blank lines, over WebSocket and HTTP."""
    async with tenant.websocket() as socket:
        await open_session(socket)
        await socket.send_message("\n" * 1_000_000)
    async with tenant.http() as client:
        await client.post(
            tenant.url, content=b"\n" * 1_000_000, headers={"content-type": "application/json"}
        )


async def unfinished_message(tenant: Tenant) -> None:
    """WebSocket fragments without an end."""
    async with await _raw_websocket(tenant) as stream:
        for _ in range(64):
            await stream.send_all(_frame(b"x" * 65536, opcode=1 if _ == 0 else 0, final=False))
        await trio.sleep(2)


async def unfinished_body(tenant: Tenant) -> None:
    """A POST of a megabyte whose last byte never comes."""
    stream = await _tcp(tenant)
    async with stream:
        host = urlsplit(tenant.url).netloc
        head = (
            f"POST /acp HTTP/1.1\r\nHost: {host}\r\nContent-Type: application/json\r\n"
            f"Authorization: Bearer {tenant.token}\r\nContent-Length: 1000001\r\n\r\n"
        )
        await stream.send_all(head.encode() + b" " * 1_000_000)
        await trio.sleep(2)


async def large_set_ups(tenant: Tenant) -> None:
    """Sessions whose set-up carries a megabyte of `_meta`."""
    async with tenant.websocket() as socket:
        await open_session(socket)
        meta = {"x": "y" * 1_000_000}
        for number in range(10, 30):
            made = request(number, "session/new", cwd="/", mcpServers=[], _meta=meta)
            await ask(socket, made)


async def many_sessions(tenant: Tenant) -> None:
    """Two thousand sessions in batches."""
    async with tenant.websocket() as socket:
        await open_session(socket)
        for first in range(1000, 3000, 100):
            batch = [
                request(number, "session/new", cwd="/", mcpServers=[])
                for number in range(first, first + 100)
            ]
            await socket.send_message(json.dumps(batch))
            while not isinstance(json.loads(await socket.get_message()), list):
                pass


async def foreign_session(tenant: Tenant) -> None:
    """Sessions of others, named with a lone surrogate beside them."""
    async with tenant.websocket() as socket:
        await open_session(socket)
        for number, method in enumerate(("load", "resume", "fork", "delete", "prompt"), 10):
            text = json.dumps(request(number, f"session/{method}", sessionId="s1", cwd="/"))
            await socket.send_message(text[:-2] + ',"_meta":"\\ud800"}}')
            await socket.get_message()


async def deep_nesting(tenant: Tenant) -> None:
    """JSON nested as deeply as can just be read, and deeper."""
    async with tenant.websocket() as socket:
        session = await open_session(socket)
        for depth in (900, 977, 1000, 100_000):
            nested = "[" * depth + "]" * depth
            text = json.dumps(prompt(depth, session, "echo x"))
            await socket.send_message(text[:-2] + f',"_meta":{nested}}}}}')
            await socket.get_message()


async def garbage(tenant: Tenant) -> None:
    """Lines that are not messages."""
    async with tenant.websocket() as socket:
        await open_session(socket)
        for line in ("{", "null", "[]", "42", '{"id":{}}', "\ud7ff", '{"jsonrpc":"2.0","id":1}'):
            await socket.send_message(line)


async def half_an_emoji(tenant: Tenant) -> None:
    """A prompt with a lone surrogate over HTTP."""
    async with tenant.http() as client:
        opened = await client.post(tenant.url, json=initialize())
        headers = {"acp-connection-id": opened.headers["acp-connection-id"]}
        body = b'{"jsonrpc":"2.0","id":1,"method":"session/new","params":{"cwd":"/\\ud83d"}}'
        headers["content-type"] = "application/json"
        await client.post(tenant.url, content=body, headers=headers)


async def slow_reader(tenant: Tenant) -> None:
    """Asks for ten megabytes and reads none of them."""
    async with await _raw_websocket(tenant) as stream:
        for id, message in enumerate(
            [initialize(), request(1, "session/new", cwd="/", mcpServers=[])]
        ):
            await stream.send_all(_frame(json.dumps({**message, "id": id}).encode()))
        for number in range(2, 12):
            text = json.dumps(prompt(number, "s1", "stream 1000 1000")).encode()
            await stream.send_all(_frame(text))
        await trio.sleep(2)


async def _tcp(tenant: Tenant) -> trio.SocketStream:
    parts = urlsplit(tenant.url)
    assert parts.hostname is not None
    assert parts.port is not None
    return await trio.open_tcp_stream(parts.hostname, parts.port)


async def _raw_websocket(tenant: Tenant) -> trio.SocketStream:
    """A WebSocket whose frames are written by hand."""
    stream = await _tcp(tenant)
    lines = [
        "GET /acp HTTP/1.1",
        f"Host: {urlsplit(tenant.url).netloc}",
        "Connection: Upgrade",
        "Upgrade: websocket",
        "Sec-WebSocket-Version: 13",
        "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==",
        f"Authorization: Bearer {tenant.token}",
    ]
    await stream.send_all("\r\n".join([*lines, "", ""]).encode())
    answer = b""
    while b"\r\n\r\n" not in answer:
        chunk = await stream.receive_some()
        if not chunk:
            raise trio.BrokenResourceError("the upgrade was refused")
        answer += chunk
    return stream


def _frame(payload: bytes, *, opcode: int = 1, final: bool = True) -> bytes:
    """A masked frame (RFC 6455 §5.2); the mask is zero."""
    length = len(payload)
    if length < 126:
        size = struct.pack("!B", 0x80 | length)
    elif length < 65536:
        size = struct.pack("!BH", 0x80 | 126, length)
    else:
        size = struct.pack("!BQ", 0x80 | 127, length)
    return bytes([opcode | (0x80 if final else 0)]) + size + bytes(4) + payload


Client = Callable[[Tenant], Awaitable[None]]

KINDS: list[Client] = [
    websocket_polite,
    websocket_cut,
    websocket_agent_dies,
    http_sessions,
    http_abandoned,
]
ATTACKS: list[Client] = [
    newlines,
    unfinished_message,
    unfinished_body,
    large_set_ups,
    many_sessions,
    foreign_session,
    deep_nesting,
    garbage,
    half_an_emoji,
    slow_reader,
]
