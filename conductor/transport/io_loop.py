"""The two I/O tasks of a connection, and their back-pressure.

One chunk is read, routed and flushed in one step, without a task switch; a chunk of very many lines
in several, between which other tasks run and signals are handled. A write loop sleeps until its
peer's pipe is full, then waits until it is writable. Back-pressure (`ReadGate`) pauses the
edges of a chain, client and agent, early. A proxy is paused late (`chain.back_pressure`): its one
pipe carries both directions, and pausing one pauses the other.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from functools import cached_property
from typing import Final

import msgspec
import trio

from conductor.jsonrpc.connection import Connection
from conductor.transport.epoll_loop import due_before_wait

__all__ = ["HIGH_WATERMARK", "Flusher", "ReadGate", "read_loop", "write_loop"]

_EOF_CHECK_INTERVAL: Final = 1.0
"""Seconds between checks of a paused edge for EOF."""

HIGH_WATERMARK: Final = 3 * 512 * 1024
"""Bytes buffered for one peer above which its sources are not read."""


class Flusher:
    """Flushes connections before trio waits, and tells who waits for room in a write buffer."""

    def __init__(self) -> None:
        self._room = trio.lowlevel.ParkingLot()

    @cached_property
    def flush_soon(self) -> Callable[[Callable[[], object]], object]:
        """Calls the function that flushes a connection, before trio waits."""
        return self._due.append

    @cached_property
    def _due(self) -> deque[Callable[[], object]]:
        return due_before_wait()

    def flush(self) -> None:
        """Flush now."""
        while self._due:
            self._due.popleft()()

    async def route_rest(self, connection: Connection) -> None:
        """Route the rest of a chunk in steps, between which other tasks run."""
        more = True
        while more:
            await trio.lowlevel.checkpoint()
            more = connection.route_more()

    def made_room(self) -> None:
        self._room.unpark_all()

    async def wait_room(self) -> None:
        await self._room.park()


class ReadGate(msgspec.Struct, eq=False):
    """Pauses reading of an edge while its receivers are over the high-water mark.

    `backlog` returns the bytes buffered for the slowest receiver. An edge that has closed its
    stream (`peer_closed_write`) is read to the end regardless, so that its end is noticed.
    """

    flusher: Flusher
    backlog: Callable[[], int]
    high_water: int = HIGH_WATERMARK
    peer_closed_write: Callable[[], bool] | None = None

    @property
    def open(self) -> bool:
        return self.backlog() <= self.high_water

    async def wait(self) -> None:
        while not self.open:
            if self.peer_closed_write is None:
                await self.flusher.wait_room()
                continue
            if self.peer_closed_write():
                return
            with trio.move_on_after(_EOF_CHECK_INTERVAL):
                await self.flusher.wait_room()


async def read_loop(connection: Connection, flusher: Flusher, read_gate: ReadGate | None) -> None:
    """Read and route until the peer ends its stream."""
    unchecked_bytes = 0
    has_unrouted = False

    def take(chunk: bytes) -> bool:
        """Route a chunk; true if a rest is unrouted, or the gate is closed."""
        nonlocal unchecked_bytes, has_unrouted
        has_unrouted = connection.feed_partial(chunk)
        unchecked_bytes += len(chunk)
        if has_unrouted:
            return True
        if read_gate is None or unchecked_bytes <= read_gate.high_water >> 5:  # each check costs
            return False
        unchecked_bytes = 0
        return not read_gate.open

    reading = True
    while reading:
        reading = await connection.transport.receive_each(take)
        if has_unrouted:
            has_unrouted = False
            await flusher.route_rest(connection)
        if reading and read_gate is not None:
            await read_gate.wait()
    connection.end()
    flusher.flush()


async def write_loop(connection: Connection, flusher: Flusher) -> None:
    """Write the backlog whenever the peer accepts more, until the connection is closed.

    With the epoll fast path no task wakes for a backlog (saves 60 of 1,000 µs per 1 MiB message).
    """
    transport = connection.transport

    def step() -> bool:
        connection.flush()
        flusher.made_room()
        if not connection.write_buffer.size and not connection.closed:
            transport.pause_writing()
        return connection.closed

    connection.on_blocked = transport.resume_writing
    await transport.write_each(step)
