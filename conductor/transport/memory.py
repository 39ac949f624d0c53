"""A pair of connected transports in one process: bounded pipes, without file descriptors."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence

import attrs
import trio

from conductor.errors import ConnectionClosed
from conductor.transport.base import CHUNK_SIZE, WaitingTransport

__all__ = ["MemoryTransport", "memory_pair"]


@attrs.define(eq=False)
class _Pipe:
    capacity: int
    chunks: deque[bytes] = attrs.field(factory=deque)
    size: int = 0
    ended: bool = False
    broken: bool = False
    readers: trio.lowlevel.ParkingLot = attrs.field(factory=trio.lowlevel.ParkingLot)
    writers: trio.lowlevel.ParkingLot = attrs.field(factory=trio.lowlevel.ParkingLot)


class MemoryTransport(WaitingTransport):
    """One end of a `memory_pair`."""

    def __init__(self, incoming: _Pipe, outgoing: _Pipe) -> None:
        super().__init__()
        self._incoming = incoming
        self._outgoing = outgoing

    async def receive(self) -> bytes:
        pipe = self._incoming
        while not pipe.chunks:
            if pipe.ended or pipe.broken:
                return b""
            await pipe.readers.park()
        chunk = pipe.chunks.popleft()
        if len(chunk) > CHUNK_SIZE:
            pipe.chunks.appendleft(chunk[CHUNK_SIZE:])
            chunk = chunk[:CHUNK_SIZE]
        pipe.size -= len(chunk)
        pipe.writers.unpark_all()
        return chunk

    def receive_now(self) -> bytes:
        """All bytes that can be received without waiting."""
        pipe = self._incoming
        data = b"".join(pipe.chunks)
        pipe.chunks.clear()
        pipe.size = 0
        pipe.writers.unpark_all()
        return data

    def write_now(self, pieces: Sequence[bytes | memoryview]) -> int:
        pipe = self._outgoing
        if pipe.broken or pipe.ended:
            raise ConnectionClosed("the other end of the memory pipe is closed")
        room = pipe.capacity - pipe.size
        data = b"".join(_first_bytes(pieces, room))
        if data:
            pipe.chunks.append(data)
            pipe.size += len(data)
            pipe.readers.unpark_all()
        return len(data)

    async def wait_writable(self) -> None:
        pipe = self._outgoing
        while pipe.size >= pipe.capacity and not pipe.broken and not pipe.ended:
            await pipe.writers.park()

    def peer_closed_write(self) -> bool:
        return self._incoming.ended

    def peer_closed_read(self) -> bool:
        return self._outgoing.broken

    def close_writing(self) -> None:
        self._outgoing.ended = True
        self._outgoing.readers.unpark_all()
        self._outgoing.writers.unpark_all()

    def close(self) -> None:
        self.close_writing()
        pipe = self._incoming
        pipe.broken = True
        pipe.chunks.clear()
        pipe.size = 0
        pipe.writers.unpark_all()
        pipe.readers.unpark_all()


def _first_bytes(pieces: Sequence[bytes | memoryview], size: int) -> Iterator[bytes | memoryview]:
    """The first `size` bytes of the pieces, without copying the rest."""
    for piece in pieces:
        part = memoryview(piece)[:size]
        size -= part.nbytes
        yield part
        if not size:
            return


def memory_pair(capacity: int = CHUNK_SIZE) -> tuple[MemoryTransport, MemoryTransport]:
    """Two connected transports; each direction holds at most `capacity` bytes unread."""
    there, back = _Pipe(capacity), _Pipe(capacity)
    return MemoryTransport(back, there), MemoryTransport(there, back)
