"""WebSockets of clients and servers: the interface for each library, and the close frame.

RFC 6455 §7.1.7 asks for a close frame with the violated rule before a connection is failed, the
only diagnosis that the author of the other end, or a browser's console, gets; trio-websocket closes
the stream without one.
"""

from __future__ import annotations

from typing import Final, Protocol

import attrs
import trio
import trio_websocket
from wsproto.connection import Connection, ConnectionType
from wsproto.events import CloseConnection

__all__ = ["CloseHandshakeStream", "WebSocket", "WebSocketClosed"]

_CLOSE_FRAME: Final = b"\x88"
_VIOLATION_CODES: Final = frozenset({1002, 1007})
"""Close codes: protocol error, and text that is not UTF-8."""
_CLOSE_TIMEOUT: Final = 2.0


class WebSocketClosed(Exception):
    """The socket is closed or lost. `code`: from the close frame; 1006 if there was none."""

    def __init__(self, code: int, reason: str | None = None) -> None:
        super().__init__(f"closed ({code}{f', {reason}' if reason else ''})")
        self.code = code
        self.reason: str = reason or ""


class WebSocket(Protocol):
    """One WebSocket, for text messages."""

    async def receive(self) -> str | None:
        """The next text message; `None` when the socket is closed. Binary ones are ignored."""

    async def send(self, text: str) -> None:
        """Send a text message, waiting for room. Raises `WebSocketClosed`."""

    async def ping(self, deadline: float) -> None:
        """Check that the peer responds. Raises `WebSocketClosed` after `deadline` seconds."""

    async def close(self, code: int = 1000, reason: str = "") -> None:
        """Send a close frame and wait briefly for the peer's. Idempotent."""


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
