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

__all__ = ["Parting"]

_CLOSE: Final = b"\x88"
_FAULTS: Final = frozenset({1002, 1007})
"""Broken rules of the protocol, and text that is not UTF-8."""
_PATIENCE: Final = 2.0


@attrs.define(eq=False)
class Parting(trio.abc.Stream):
    """`_stream`, and the WebSocket over it, once there is one."""

    _stream: trio.abc.Stream
    connection: trio_websocket.WebSocketConnection | None = attrs.field(default=None, init=False)
    _said_goodbye: bool = attrs.field(default=False, init=False)

    @property
    def fault(self) -> trio_websocket.CloseReason | None:
        """By which rule the peer was found to be wrong."""
        closed = None if self.connection is None else self.connection.closed
        # What the peer closed has been answered by a close frame.
        if closed is None or closed.code not in _FAULTS or self._said_goodbye:
            return None
        return closed

    async def say_last_words(self) -> None:
        """Tell the peer of its fault, if it has one."""
        if self.connection is None or (fault := self.fault) is None:
            return
        kind = ConnectionType.CLIENT if self.connection.is_client else ConnectionType.SERVER
        words = Connection(kind).send(CloseConnection(code=fault.code, reason=fault.reason))
        try:
            with trio.move_on_after(_PATIENCE):
                await self._stream.send_all(words)
        except (trio.BrokenResourceError, trio.ClosedResourceError, trio.BusyResourceError):
            pass  # it is gone, or is in the middle of another frame

    async def send_all(self, data: bytes | bytearray | memoryview) -> None:
        self._said_goodbye = data[:1] == _CLOSE  # every call brings a frame
        await self._stream.send_all(data)

    async def wait_send_all_might_not_block(self) -> None:
        await self._stream.wait_send_all_might_not_block()

    async def receive_some(self, max_bytes: int | None = None) -> bytes | bytearray:
        return await self._stream.receive_some(max_bytes)

    async def aclose(self) -> None:
        try:
            await self.say_last_words()
        finally:
            await self._stream.aclose()
