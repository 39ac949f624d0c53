"""Server end of a WebSocket, its client, and the relay between it and the lines of the client.

A text message is one line (a batch too). The peer is sent pings; if neither a pong nor other
bytes pass within the timeout, the socket is cut and the client detached.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Final

import attrs
import trio
import trio_websocket
from wsproto.utilities import LocalProtocolError

from conductor.acp import CONNECTION_HEADER
from conductor.errors import ConnectionClosed
from conductor.log import get_logger
from conductor.network.resumable_stream import RECEIVED_HEADER, RESUME_HEADER, ResumableStream
from conductor.network.running_time import sleep_running
from conductor.network.sequence_numbers import SequenceError
from conductor.network.websocket import WebSocket, WebSocketClosed
from conductor.server.access import Refusal
from conductor.server.clients import ClientRegistry, Device, RemoteClient
from conductor.server.limits import ServerTimeouts
from conductor.server.protocol_sniff import PeekableStream

__all__ = [
    "AdmittedWebSocket",
    "AsgiServerWebSocket",
    "TrioServerWebSocket",
    "admit_websocket",
    "serve_websocket",
]

_ABNORMAL_CLOSURE: Final = 1006
_FINAL_CLOSE_CODES: Final = frozenset({1000, 1005})
"""Close codes by which a client ends its connection for good."""
_CLOSE_TIMEOUT: Final = 2.0
"""Seconds for the close frame of the peer."""

log: Final = get_logger(component="server")


class ServerWebSocket(WebSocket):
    """A server WebSocket, with its close code."""

    close_code: int
    """Close code, once it is closed; 1006 if it was lost."""

    async def send_each(self, texts: Sequence[str]) -> None:
        """Send text messages, in order. Raises `WebSocketClosed`."""
        for text in texts:
            await self.send(text)


@attrs.define(eq=False)
class TrioServerWebSocket(ServerWebSocket):
    """A WebSocket on trio-websocket over `stream`."""

    connection: trio_websocket.WebSocketConnection
    stream: PeekableStream
    cut: Callable[[], Awaitable[None]]
    """Closes the TCP connection immediately."""
    takes_binary: bool = False
    """Whether binary messages are read as text; else they are ignored."""

    @property
    def close_code(self) -> int:  # type: ignore[override]
        closed = self.connection.closed
        return _ABNORMAL_CLOSURE if closed is None else closed.code

    async def receive(self) -> str | None:
        while True:
            try:
                message = await self.connection.get_message()
            except trio_websocket.ConnectionClosed:
                return None
            if isinstance(message, str):
                return message
            if self.takes_binary:
                return message.decode(errors="replace")

    async def send(self, text: str) -> None:
        try:
            await self.connection.send_message(text)
        except (trio_websocket.ConnectionClosed, LocalProtocolError):
            raise WebSocketClosed(self.close_code) from None

    async def send_each(self, texts: Sequence[str]) -> None:
        if len(texts) > 1:
            self.stream.cork()
        for text in texts:
            await self.send(text)
        try:
            await self.stream.uncork()
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            raise WebSocketClosed(self.close_code) from None

    async def ping(self, deadline: float) -> None:
        """Any bytes in either direction count as a response, so that long messages can pass."""
        asked = trio.current_time()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._wait_pong, nursery.cancel_scope)
            left = deadline
            while left > 0:
                await sleep_running(left)
                left = max(asked, self.stream.last_progress) + deadline - trio.current_time()
            await self.cut()
            raise WebSocketClosed(_ABNORMAL_CLOSURE, f"nothing received for {deadline:g} s")

    async def close(self, code: int = 1000, reason: str = "") -> None:
        with trio.move_on_after(_CLOSE_TIMEOUT) as close_handshake:
            await self.connection.aclose(code, reason or None)
        if close_handshake.cancelled_caught:
            await self.cut()

    async def _wait_pong(self, scope: trio.CancelScope) -> None:
        try:
            await self.connection.ping()
        except trio_websocket.ConnectionClosed:
            await trio.sleep_forever()  # handled by the receiving task
        scope.cancel()


@attrs.define(eq=False)
class AsgiServerWebSocket(ServerWebSocket):
    """A WebSocket on hypercorn (HTTP/2, or a reused HTTP/1.1 connection)."""

    _receive: Callable[[], Awaitable[dict[str, Any]]]
    _send: Callable[[dict[str, Any]], Awaitable[None]]
    close_code: int = attrs.field(default=_ABNORMAL_CLOSURE, init=False)
    _closed: bool = attrs.field(default=False, init=False)

    async def receive(self) -> str | None:
        while not self._closed:
            event = await self._receive()
            if event["type"] == "websocket.disconnect":
                self._closed = True
                self.close_code = event.get("code") or _ABNORMAL_CLOSURE
            elif (text := event.get("text")) is not None:
                return str(text)
        return None

    async def send(self, text: str) -> None:
        if self._closed:
            raise WebSocketClosed(self.close_code)
        await self._send({"type": "websocket.send", "text": text})

    async def ping(self, deadline: float) -> None:
        """ASGI has no pings: hypercorn sends them, and TCP keep-alive detects a lost peer."""

    async def close(self, code: int = 1000, reason: str = "") -> None:
        if not self._closed:
            self._closed = True
            await self._send({"type": "websocket.close", "code": code, "reason": reason})


@attrs.frozen
class AdmittedWebSocket:
    """The client of a new WebSocket."""

    client: RemoteClient
    headers: Sequence[tuple[str, str]] = ()
    """Additional headers of the handshake response."""
    received: int = 0
    """Number of the newest text that a conductor has received."""


def admit_websocket(
    clients: ClientRegistry, headers: Mapping[str, str], cookie: str | None, device: Device
) -> AdmittedWebSocket | Refusal:
    """Select or create the client of a WebSocket, and with it the chain, or refuse it.

    - A conductor names its connection and the newest text it has received: the resumable stream
      continues, and neither its chain nor its user sees the cut.
    - Another client names its connection by the header, or by the cookie if the connection has no
      socket: it is attached to its chain again, with turns that ran on (`chain.detached_client`).
      The header also replaces a socket that is not detected as lost yet, since the id is a secret.
    - Any other WebSocket gets a new client with a chain.
    """
    if (received := headers.get(RECEIVED_HEADER)) is not None:
        return _resume(clients.find(headers.get(CONNECTION_HEADER)), received)
    if headers.get(RESUME_HEADER) is not None:
        client = clients.admit(device, "websocket")
        if isinstance(client, Refusal):
            return client
        client.resumable_stream = ResumableStream(client.lines, client.record_activity)
        return AdmittedWebSocket(client, ((RESUME_HEADER, f"{clients.timeouts.keep:g}"),))
    if not clients.draining:  # else the client had better use another server
        named = clients.find(headers.get(CONNECTION_HEADER))
        remembered = clients.find(cookie)
        if named is not None and _can_reconnect(named):
            return AdmittedWebSocket(named)
        if remembered is not None and _can_reconnect(remembered) and not remembered.attached:
            return AdmittedWebSocket(remembered)
    client = clients.admit(device, "websocket")
    if isinstance(client, Refusal):
        return client
    client.chain.client_end.allow_reattach()
    return AdmittedWebSocket(client)


def _resume(client: RemoteClient | None, received: str) -> AdmittedWebSocket | Refusal:
    if client is None or client.resumable_stream is None:
        return Refusal(404, "Unknown Acp-Connection-Id: it has ended, or was never here")
    if not received.isascii() or not received.isdecimal() or len(received) > 18:
        return Refusal(400, "Acp-Conductor-Received must be a number")
    return AdmittedWebSocket(
        client, ((RECEIVED_HEADER, str(client.resumable_stream.received)),), int(received)
    )


def _can_reconnect(client: RemoteClient) -> bool:
    """Whether its chain accepts another WebSocket, now or after the loss of the current one."""
    if client.profile != "websocket" or client.resumable_stream is not None:
        return False
    return client.runs_detached or (client.attached and client.chain.initialized.is_set())


async def serve_websocket(
    socket: ServerWebSocket, admitted: AdmittedWebSocket, timeouts: ServerTimeouts
) -> None:
    """Relay lines until the socket or the chain ends.

    A close by the client ends its chain; a lost client is detached and may reconnect. A newer
    socket for the same client replaces this one.
    """
    client = admitted.client
    while client.attached:
        client.relay_scope.cancel()
        await client.detached.wait()
    with client.attachment():
        with trio.CancelScope() as client.relay_scope:
            if client.resumable_stream is not None:
                await _relay_resumable(
                    socket, client.resumable_stream, admitted.received, client, timeouts
                )
            else:
                if client.runs_detached:
                    client.reattach()
                await _relay(socket, client, timeouts)
        if socket.close_code in _FINAL_CLOSE_CODES:
            client.end()
        else:
            client.detach()


async def _relay(socket: ServerWebSocket, client: RemoteClient, timeouts: ServerTimeouts) -> None:
    async with trio.open_nursery() as nursery:
        nursery.start_soon(_receive_messages, socket, client, nursery.cancel_scope)
        nursery.start_soon(_send_pings, socket, timeouts, nursery.cancel_scope)
        nursery.start_soon(_send_messages, socket, client, nursery.cancel_scope)


async def _relay_resumable(
    socket: ServerWebSocket,
    resumable_stream: ResumableStream,
    received: int,
    client: RemoteClient,
    timeouts: ServerTimeouts,
) -> None:
    async with trio.open_nursery() as nursery:
        nursery.start_soon(_send_pings, socket, timeouts, nursery.cancel_scope)
        nursery.start_soon(_close_at_end, socket, client)
        try:
            await resumable_stream.carry(socket, received)
        except SequenceError as exc:
            log.warning("connection cannot be resumed", client=client.number, reason=str(exc))
            client.end()
        nursery.cancel_scope.cancel()


async def _close_at_end(socket: ServerWebSocket, client: RemoteClient) -> None:
    await client.ended.wait()
    await socket.close(*_close_reason(client))


async def _receive_messages(
    socket: ServerWebSocket, client: RemoteClient, scope: trio.CancelScope
) -> None:
    try:
        while (text := await socket.receive()) is not None:
            client.record_activity()
            await client.lines.send([text.encode()])
    except ConnectionClosed:
        return  # the chain has ended: `_send_messages` delivers its last messages
    scope.cancel()


async def _send_messages(
    socket: ServerWebSocket, client: RemoteClient, scope: trio.CancelScope
) -> None:
    unsent = client.unsent
    try:
        while True:
            await socket.send_each([line.decode() for line in unsent])
            unsent.clear()
            lines = await client.lines.receive()
            if not lines:
                break
            client.record_activity()
            unsent.extend(lines)
        await client.ended.wait()
        await socket.close(*_close_reason(client))
    except WebSocketClosed:
        pass
    scope.cancel()


async def _send_pings(socket: WebSocket, timeouts: ServerTimeouts, scope: trio.CancelScope) -> None:
    try:
        while True:
            await trio.sleep(timeouts.ping_interval)
            await socket.ping(timeouts.ping_timeout)
    except WebSocketClosed:
        scope.cancel()


def _close_reason(client: RemoteClient) -> tuple[int, str]:
    """For a client that has ended; without `ending`, its chain has crashed."""
    ending = client.ending
    if ending is None or ending.reason == "failed":
        return 1011, "the chain failed"
    if ending.reason == "stopped":
        return 1001, "the server ended this"
    return 1000, ""
