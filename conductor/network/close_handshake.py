"""The stream under a WebSocket, by which a peer that breaks the rules is told so before it is cut.

Whoever fails a connection should first say by which rule (RFC 6455 §7.1.7), which is all that the
author of the other end, or a browser's console, has to go by; trio-websocket only hangs up.
"""

from __future__ import annotations

from typing import Final

import attrs
import trio
import trio_websocket
from wsproto.connection import Connection, ConnectionType
from wsproto.events import CloseConnection

__all__ = ["CloseHandshakeStream"]

_CLOSE_FRAME: Final = b"\x88"
_VIOLATION_CODES: Final = frozenset({1002, 1007})
"""Broken rules of the protocol, and text that is not UTF-8."""
_CLOSE_TIMEOUT: Final = 2.0


@attrs.define(eq=False)
class CloseHandshakeStream(trio.abc.Stream):
    """`_stream`, and the WebSocket over it, once there is one."""

    _stream: trio.abc.Stream
    connection: trio_websocket.WebSocketConnection | None = attrs.field(default=None, init=False)
    _close_sent: bool = attrs.field(default=False, init=False)

    @property
    def violation(self) -> trio_websocket.CloseReason | None:
        """By which rule the peer was found to be wrong."""
        closed = None if self.connection is None else self.connection.closed
        # What the peer closed has been answered by a close frame.
        if closed is None or closed.code not in _VIOLATION_CODES or self._close_sent:
            return None
        return closed

    async def send_close_frame(self) -> None:
        """Tell the peer of its fault, if it has one."""
        if self.connection is None or (violation := self.violation) is None:
            return
        kind = ConnectionType.CLIENT if self.connection.is_client else ConnectionType.SERVER
        words = Connection(kind).send(CloseConnection(code=violation.code, reason=violation.reason))
        try:
            with trio.move_on_after(_CLOSE_TIMEOUT):
                await self._stream.send_all(words)
        except (trio.BrokenResourceError, trio.ClosedResourceError, trio.BusyResourceError):
            pass  # it is gone, or is in the middle of another frame

    async def send_all(self, data: bytes | bytearray | memoryview) -> None:
        self._close_sent = data[:1] == _CLOSE_FRAME  # every call brings a frame
        await self._stream.send_all(data)

    async def wait_send_all_might_not_block(self) -> None:
        await self._stream.wait_send_all_might_not_block()

    async def receive_some(self, max_bytes: int | None = None) -> bytes | bytearray:
        return await self._stream.receive_some(max_bytes)

    async def aclose(self) -> None:
        try:
            await self.send_close_frame()
        finally:
            await self._stream.aclose()
