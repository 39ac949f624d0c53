"""Protocol detection: peek at the first bytes of a stream before choosing its reader."""

from __future__ import annotations

from typing import Any, Final

import trio

__all__ = ["PeekableStream", "is_websocket_upgrade"]

_HTTP2_PREFACE: Final = b"PRI * HTTP/2.0\r\n"
_HEAD_END: Final = b"\r\n\r\n"
_CHUNK: Final = 65536


class PeekableStream(trio.abc.HalfCloseableStream):
    """A stream that returns the peeked bytes first. `last_progress`: time of the last bytes in
    either direction."""

    def __init__(self, stream: trio.SocketStream | trio.SSLStream[trio.SocketStream]) -> None:
        self._stream = stream
        self._pending = b""
        self.head: bytes = b""
        self.last_progress: float = trio.current_time()
        self._corked: bytearray | None = None

    def __getattr__(self, name: str) -> Any:
        # hypercorn reads attributes that only one of the two stream types has.
        return getattr(self._stream, name)

    async def peek(self, most: int) -> None:
        """Read until `head` is an HTTP/1.1 head, an HTTP/2 preface, longer than `most`, or EOF."""
        while not (
            _HEAD_END in self.head or self.head.startswith(_HTTP2_PREFACE) or len(self.head) > most
        ):
            more = await self._stream.receive_some(_CHUNK)
            if not more:
                break
            self._pending += more
            self.head = self._pending
        self.head = self.head.partition(_HEAD_END)[0]

    async def receive_some(self, max_bytes: int | None = None) -> bytes:
        if self._pending:
            most = max_bytes or len(self._pending)
            data, self._pending = self._pending[:most], self._pending[most:]
            return data
        data = bytes(await self._stream.receive_some(max_bytes or _CHUNK))
        self.last_progress = trio.current_time()
        return data

    def cork(self) -> None:
        """Buffer writes until `uncork` or a full chunk: half of the cost of a small message is the
        system call."""
        self._corked = bytearray()

    async def uncork(self) -> None:
        corked, self._corked = self._corked, None
        if corked:
            await self.send_all(corked)

    async def send_all(self, data: bytes | bytearray | memoryview) -> None:
        if self._corked is not None:
            self._corked += data
            if len(self._corked) < _CHUNK:
                return
            data, self._corked = self._corked, bytearray()
        view = memoryview(data)
        for start in range(0, max(len(view), 1), _CHUNK):
            await self._stream.send_all(view[start : start + _CHUNK])
            self.last_progress = trio.current_time()

    async def wait_send_all_might_not_block(self) -> None:
        await self._stream.wait_send_all_might_not_block()

    async def send_eof(self) -> None:
        if isinstance(self._stream, trio.SocketStream):
            await self._stream.send_eof()

    async def aclose(self) -> None:
        await self._stream.aclose()


def is_websocket_upgrade(head: bytes) -> bool:
    """Whether the head of an HTTP/1.1 request is a WebSocket upgrade."""
    request, *lines = head.split(b"\r\n")
    if not request.startswith(b"GET ") or not request.endswith(b" HTTP/1.1"):
        return False
    for line in lines:
        name, _, value = line.partition(b":")
        if name.strip().lower() == b"upgrade" and value.strip().lower() == b"websocket":
            return True
    return False
