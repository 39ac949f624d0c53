"""Send a close frame before a WebSocket connection is failed.

RFC 6455 §7.1.7 asks for a close frame with the violated rule, the only diagnosis that the author of
the other end, or a browser's console, gets; trio-websocket closes the stream without one.
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
"""Close codes: protocol error, and text that is not UTF-8."""
_CLOSE_TIMEOUT: Final = 2.0


@attrs.define(eq=False)
class CloseHandshakeStream(trio.abc.Stream):
    """Byte stream below a WebSocket. Set `connection` once the handshake is done."""

    _stream: trio.abc.Stream
    connection: trio_websocket.WebSocketConnection | None = attrs.field(default=None, init=False)
    _close_sent: bool = attrs.field(default=False, init=False)

    @property
    def violation(self) -> trio_websocket.CloseReason | None:
        """The protocol violation by the peer, or `None`."""
        closed = None if self.connection is None else self.connection.closed
        # A close frame by the peer has already been answered by one.
        if closed is None or closed.code not in _VIOLATION_CODES or self._close_sent:
            return None
        return closed

    async def send_close_frame(self) -> None:
        """Send the close frame for a violation, if there is one. Ignores a lost connection."""
        if self.connection is None or (violation := self.violation) is None:
            return
        kind = ConnectionType.CLIENT if self.connection.is_client else ConnectionType.SERVER
        words = Connection(kind).send(CloseConnection(code=violation.code, reason=violation.reason))
        try:
            with trio.move_on_after(_CLOSE_TIMEOUT):
                await self._stream.send_all(words)
        except (trio.BrokenResourceError, trio.ClosedResourceError, trio.BusyResourceError):
            pass  # lost, or in the middle of another frame

    async def send_all(self, data: bytes | bytearray | memoryview) -> None:
        self._close_sent = data[:1] == _CLOSE_FRAME  # each call has one frame
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
