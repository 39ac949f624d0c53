"""Bidirectional tunnel between a client and another node; closes when both directions reach EOF.

Where both ends are byte streams, bytes are copied. A WebSocket that hypercorn has parsed (over
HTTP/2, or on a reused HTTP/1.1 connection) has no bytes: messages are copied, and each of the two
hops has pings of its own. If one WebSocket is lost without a close frame, the other is cut without
one: the owner of the client then keeps it for its return. hypercorn reports a close by the client
as a loss.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Final, Protocol

import trio
import trio_websocket

__all__ = ["STREAM_ERRORS", "MessageSocket", "copy_bytes", "copy_messages"]

STREAM_ERRORS: Final = (OSError, trio.BrokenResourceError, trio.ClosedResourceError)
"""Errors of a lost stream."""
_CHUNK: Final = 65536
_CLOSE_TIMEOUT: Final = 2.0
"""Seconds for the EOF of the client after that of the node."""
_ABNORMAL_CLOSURE: Final = 1006


class MessageSocket(Protocol):
    """The client's WebSocket."""

    close_code: int

    async def receive(self) -> str | None: ...

    async def send(self, text: str) -> None: ...

    async def close(self, code: int = 1000, reason: str = "") -> None: ...


async def copy_bytes(client: trio.abc.HalfCloseableStream, owner: trio.abc.Stream) -> None:
    client_said_all = trio.Event()
    async with trio.open_nursery() as nursery:

        async def toward_owner() -> None:
            # TLS has no half of a connection to close.
            if await _copy(client, owner) and isinstance(owner, trio.SocketStream):
                await owner.send_eof()
                client_said_all.set()
            else:
                nursery.cancel_scope.cancel()

        nursery.start_soon(toward_owner)
        if await _copy(owner, client):
            with trio.move_on_after(_CLOSE_TIMEOUT), suppress(*STREAM_ERRORS):
                await client.send_eof()
                await client_said_all.wait()
        nursery.cancel_scope.cancel()


async def copy_messages(client: MessageSocket, owner: trio_websocket.WebSocketConnection) -> None:
    """Copy messages until either side ends. The caller closes the stream below `owner`."""
    async with trio.open_nursery() as nursery:

        async def toward_owner() -> None:
            with suppress(trio_websocket.ConnectionClosed):
                while (text := await client.receive()) is not None:
                    await owner.send_message(text)
                if client.close_code != _ABNORMAL_CLOSURE:
                    await owner.aclose(client.close_code)
            nursery.cancel_scope.cancel()

        nursery.start_soon(toward_owner)
        try:
            while True:
                message = await owner.get_message()
                if isinstance(message, str):
                    await client.send(message)
        except trio_websocket.ConnectionClosed as exc:
            if exc.reason is not None and exc.reason.code != _ABNORMAL_CLOSURE:
                await client.close(exc.reason.code, exc.reason.reason or "")
        nursery.cancel_scope.cancel()


async def _copy(source: trio.abc.ReceiveStream, sink: trio.abc.SendStream) -> bool:
    """Copy to EOF; `False` if either stream is lost."""
    try:
        while chunk := await source.receive_some(_CHUNK):
            await sink.send_all(chunk)
    except STREAM_ERRORS:
        return False
    return True
