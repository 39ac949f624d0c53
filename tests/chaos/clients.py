"""Ordinary clients of one server for the growth test: over WebSocket and HTTP.

Every function opens a connection of its own, does what its name says, and leaves.
"""

from __future__ import annotations

import json
import random
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

import attrs
import httpx2
import trio
import trio_websocket
from support.raw_json import compact
from support.server_clients import ask, initialize, new_session, prompt, request

__all__ = ["GONE", "KINDS", "Client", "Device", "Refused"]

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


class Refused(Exception):
    """The server refused a request, or ended a stream early. Names the connection."""


@attrs.frozen
class Device:
    """A client's token, and a seeded source of variety."""

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


async def open_session(socket: Any) -> str:
    await ask(socket, initialize())
    return _session_of(await ask(socket, new_session(1)))


def _session_of(answer: Any, where: str = "") -> str:
    if "error" in answer:
        raise Refused(f"session/new: {json.dumps(answer['error'])[:300]}{where}")
    session: str = answer["result"]["sessionId"]
    return session


async def open_http(client: httpx2.AsyncClient, url: str) -> dict[str, str]:
    """Initialize a connection over HTTP; the headers that name it."""
    opened = await client.post(url, json=initialize())
    _check(opened, "initialize", {})
    return {"acp-connection-id": opened.headers["acp-connection-id"]}


def _check(response: httpx2.Response, what: str, headers: dict[str, str]) -> None:
    if response.status_code >= 300:
        connection = headers.get("acp-connection-id")
        raise Refused(f"{what}: {response.status_code} {response.text}, connection {connection}")


# -- ordinary clients ------------------------------------------------------------------------------


async def websocket_polite(device: Device) -> None:
    """Several sessions, a prompt in each, some closed, and a goodbye."""
    async with device.websocket() as socket:
        session = await open_session(socket)
        for number in range(10, 10 + device.random.randrange(1, 6)):
            made = _session_of(await ask(socket, new_session(number)))
            await ask(socket, prompt(number + 100, made, "echo hello"))
            if number % 2:
                await ask(socket, request(number + 200, "session/close", sessionId=made))
        await ask(socket, prompt(9, session, "stream 20 200"))


async def websocket_cut(device: Device) -> None:
    """Cut in the middle of a turn, without a word."""
    async with device.websocket() as socket:
        session = await open_session(socket)
        await socket.send_message(compact(prompt(2, session, "wait")))
        with suppress(*GONE):
            await socket._stream.aclose()


async def websocket_agent_dies(device: Device) -> None:
    """The agent dies in a turn and is restarted."""
    async with device.websocket() as socket:
        session = await open_session(socket)
        await ask(socket, prompt(2, session, "die 1"))
        again = await ask(socket, new_session(3))
        if "result" in again:
            await ask(socket, prompt(4, again["result"]["sessionId"], "echo hello"))


async def http_sessions(device: Device) -> None:
    """Sessions with a stream each, then DELETE."""
    await _http(device, sessions=device.random.randrange(1, 4), end="delete")


async def http_abandoned(device: Device) -> None:
    """A connection over HTTP that is opened and never spoken of again."""
    await _http(device, sessions=1, end="abandon")


async def _http(device: Device, *, sessions: int, end: str) -> None:
    async with device.http() as client, trio.open_nursery() as nursery:
        headers = await open_http(client, device.url)
        told = _Stream(device, headers)
        nursery.start_soon(told.read)
        for number in range(1, sessions + 1):
            new = await client.post(device.url, json=new_session(number), headers=headers)
            _check(new, "POST", headers)
            connection = headers["acp-connection-id"]
            session = _session_of(await told.answer(number), f", connection {connection}")
            named = {**headers, "acp-session-id": session}
            said = _Stream(device, named)
            nursery.start_soon(said.read)
            text = prompt(number + 100, session, "echo hello")
            _check(await client.post(device.url, json=text, headers=named), "POST", headers)
            await said.answer(number + 100)
        if end == "delete":
            _check(await client.delete(device.url, headers=headers), "DELETE", headers)
        nursery.cancel_scope.cancel()


@attrs.define(eq=False)
class _Stream:
    """An event stream, read over a connection of its own: httpcore delays what arrives for one of
    several streams."""

    device: Device
    headers: dict[str, str]
    ended: str = "it was not opened"
    """How it ended."""
    _began: float = attrs.field(factory=trio.current_time, init=False)
    _channel: Any = attrs.field(factory=lambda: trio.open_memory_channel[Any](1000), init=False)

    async def answer(self, number: int) -> Any:
        async for message in self._channel[1]:
            if message.get("id") == number and "method" not in message:
                return message
        raise Refused(f"no answer to {number}: {self.ended}; {self.headers}")

    async def read(self) -> None:
        accept = {**self.headers, "accept": "text/event-stream"}
        with self._channel[0]:
            try:
                async with (
                    self.device.http() as client,
                    client.stream("GET", self.device.url, headers=accept, timeout=None) as response,
                ):
                    await self._read(response)
            except GONE as exc:
                self._end(f"{type(exc).__name__}: {exc}")

    async def _read(self, response: httpx2.Response) -> None:
        text = ""
        async for line in response.aiter_lines():
            if line.startswith("data: "):
                await self._channel[0].send(json.loads(line.removeprefix("data: ")))
            else:
                text = line or text
        self._end(f"{response.status_code} {text}")

    def _end(self, how: str) -> None:
        seconds = trio.current_time() - self._began
        self.ended = f"the stream ended after {seconds:.1f} s: {how}"


Client = Callable[[Device], Awaitable[None]]

KINDS: list[Client] = [
    websocket_polite,
    websocket_cut,
    websocket_agent_dies,
    http_sessions,
    http_abandoned,
]
