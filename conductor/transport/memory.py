"""A pair of connected transports in one process: bounded pipes, without file descriptors.

A chain, or the connection of a remote component, holds one end; the code that carries its lines
over the network holds the other end through a `LineChannel`.
"""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

import attrs
import trio

from conductor.errors import ConnectionClosed
from conductor.jsonrpc.line_framing import LineSplitter
from conductor.transport.base import CHUNK_SIZE, WaitingTransport

__all__ = ["LineChannel", "MemoryTransport", "memory_pair"]

_SPACES: Final = bytes.maketrans(b"\n", b" ")


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


@attrs.define(eq=False)
class LineChannel:
    """The network end of a memory pair, in lines. One reader; any number of senders. Lines are
    atomic, and the bounds of the pair give back-pressure in both directions."""

    _transport: MemoryTransport
    _splitter: LineSplitter = attrs.field(factory=lambda: LineSplitter(sys.maxsize), init=False)
    _unsent: deque[memoryview] = attrs.field(factory=deque, init=False)
    _sending: trio.Lock = attrs.field(factory=trio.Lock, init=False)

    async def receive(self) -> list[bytes]:
        """The next lines, at least one, without their newlines; `[]` at EOF.

        An incomplete last line is dropped.
        """
        while chunk := await self._transport.receive():
            if lines := self._splitter.feed(chunk):
                return lines  # type: ignore[return-value]  # none is over the limit
        return []

    def take_rest(self) -> bytes:
        """All bytes that are not received yet, newlines included. Does not wait."""
        begun = self._splitter.end()
        rest = self._transport.receive_now()
        return begun + rest if isinstance(begun, bytes) else rest

    async def send(self, lines: Iterable[bytes]) -> None:
        """Send lines, waiting for room. Raises `ConnectionClosed` when the reader has gone.

        A newline within a line (white space between JSON tokens) becomes a space. After a
        cancellation, the next call sends the rest first: no line is lost or truncated.
        """
        data = b"".join([(_on_one_line(line) if b"\n" in line else line) + b"\n" for line in lines])
        if data:
            self._unsent.append(memoryview(data))
        async with self._sending:
            while self._unsent:
                if self._drop(self._transport.write_now(self._unsent)):
                    continue
                await self._transport.wait_writable()

    def close_sending(self) -> None:
        """EOF from the network; the other direction stays open."""
        self._transport.close_writing()

    def close(self) -> None:
        """Close both directions and drop unsent lines. Idempotent."""
        self._unsent.clear()
        self._transport.close()

    def _drop(self, written: int) -> int:
        left = written
        while left:
            first = self._unsent[0]
            if left < first.nbytes:
                self._unsent[0] = first[left:]
                break
            left -= first.nbytes
            self._unsent.popleft()
        return written


def _on_one_line(line: bytes) -> bytes:
    return line.translate(_SPACES)  # replace() takes three seconds for 100 MB of newlines
