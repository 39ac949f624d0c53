"""Receive limits for the WebSockets of trio-websocket and hypercorn.

Incomplete messages are counted and have a deadline (`partial_message`). permessage-deflate is not
negotiated: a few hundred bytes could expand to a message of any size before its length is known,
and trio-websocket does not support it.

hypercorn has no option for another WebSocket class; `patch_hypercorn` replaces it. Apps served
with a `Config` other than `BoundedConfig` keep hypercorn's behaviour.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final

import hypercorn.protocol.h2
import hypercorn.protocol.h11
import trio
import trio_websocket
from hypercorn.config import Config
from hypercorn.protocol.events import Body, Data, EndData, Event, Request
from hypercorn.protocol.ws_stream import ASGIWebsocketState, FrameTooLargeError, WSStream
from wsproto import WSConnection
from wsproto.connection import ConnectionState, ConnectionType
from wsproto.events import CloseConnection, Message, Ping

from conductor.server.websocket.partial_message import TOO_LARGE, CloseStatus, PartialMessage

__all__ = [
    "PARTIAL_MESSAGE_KEY",
    "BoundedConfig",
    "BoundedTrioConnection",
    "patch_hypercorn",
    "wrap_server_stream",
]

PARTIAL_MESSAGE_KEY: Final = "conductor.unfinished"
"""Key of the `PartialMessage` in the state of the ASGI scope."""

_CLOSE_TIMEOUT: Final = 2.0
"""Seconds for a close frame to be written."""


class BoundedTrioConnection(trio_websocket.WebSocketConnection):
    """A trio-websocket connection (HTTP/1.1 upgrade) with receive limits."""

    partial_message: PartialMessage

    async def give_up(self, closing: CloseStatus) -> None:
        """Close the WebSocket and drop the incomplete message."""
        self._reader_running = False
        self._message_size, self._message_parts = 0, []
        self.partial_message.done()
        self._close_reason = trio_websocket.CloseReason(*closing)
        with trio.move_on_after(_CLOSE_TIMEOUT):
            await self._send(CloseConnection(code=closing[0], reason=closing[1]))
        await self._recv_channel.aclose()

    async def _handle_message_event(self, event: Any) -> None:
        closing = self.partial_message.add(event.data, is_last=event.message_finished)
        if closing is not None:
            await self.give_up(closing)
            return
        await super()._handle_message_event(event)
        if event.message_finished or not self._reader_running:
            self.partial_message.done()


async def wrap_server_stream(
    nursery: trio.Nursery,
    stream: trio.abc.Stream,
    partial_message: PartialMessage,
    *,
    max_message_size: int,
    receive_buffer_size: int,
) -> tuple[trio_websocket.WebSocketRequest, BoundedTrioConnection]:
    """`trio_websocket.wrap_server_stream`, for a `BoundedTrioConnection`."""
    connection = BoundedTrioConnection(
        stream,
        WSConnection(ConnectionType.SERVER),
        max_message_size=max_message_size,
        receive_buffer_size=receive_buffer_size,
    )
    connection.partial_message = partial_message
    nursery.start_soon(connection._reader_task)
    return await connection._get_request(), connection


class BoundedConfig(Config):
    """hypercorn configuration that enables the receive limits."""

    partial_message: Callable[[], PartialMessage]


class _BoundedWSStream(WSStream):
    """hypercorn's WebSocket (HTTP/2, or a reused HTTP/1.1 connection) with receive limits."""

    partial_message: PartialMessage | None = None
    given_up: bool = False

    async def handle(self, event: Event) -> None:
        if isinstance(event, Request) and isinstance(self.config, BoundedConfig):
            self.partial_message = self.config.partial_message()
            state: Any = {**event.state, PARTIAL_MESSAGE_KEY: (self.partial_message, self.give_up)}
            extensions = b"sec-websocket-extensions"
            headers = [pair for pair in event.headers if pair[0].lower() != extensions]
            event = replace(event, headers=headers, state=state)
        elif self.given_up and isinstance(event, (Body, Data)):
            return
        await super().handle(event)

    async def give_up(self, closing: CloseStatus) -> None:
        """Close the WebSocket and drop the incomplete message."""
        if self.given_up or self.closed:
            return
        self.given_up = True
        self.state = ASGIWebsocketState.CLOSED
        self.buffer.clear()
        if self.partial_message is not None:
            self.partial_message.done()
        with trio.move_on_after(_CLOSE_TIMEOUT):
            await self._send_wsproto_event(CloseConnection(code=closing[0], reason=closing[1]))
            await self.send(EndData(stream_id=self.stream_id))
        assert self.app_put is not None
        await self.app_put({"type": "websocket.disconnect", "code": closing[0]})

    async def _handle_events(self) -> None:
        if self.partial_message is None:
            await super()._handle_events()
            return
        for event in self.connection.events():
            if isinstance(event, Message):
                closing = self.partial_message.add(event.data, is_last=event.message_finished)
                try:
                    self.buffer.extend(event)
                except FrameTooLargeError:
                    closing = TOO_LARGE
                if closing is not None:
                    await self.give_up(closing)
                    return
                if event.message_finished:
                    message = self.buffer.to_message()
                    self.buffer.clear()
                    assert self.app_put is not None
                    await self.app_put(message)
                    self.partial_message.done()
            elif isinstance(event, Ping):
                await self._send_wsproto_event(event.response())
            elif isinstance(event, CloseConnection):
                if self.connection.state == ConnectionState.OPEN:  # protocol violation by the peer
                    await self.give_up((event.code, event.reason or ""))
                    return
                if self.connection.state == ConnectionState.REMOTE_CLOSING:
                    await self._send_wsproto_event(event.response())
                await self.send(hypercorn.protocol.events.StreamClosed(stream_id=self.stream_id))


def patch_hypercorn() -> None:
    """Replace hypercorn's WebSocket class by the one with receive limits."""
    for module in (hypercorn.protocol.h2, hypercorn.protocol.h11):
        module.WSStream = _BoundedWSStream  # type: ignore[attr-defined]
