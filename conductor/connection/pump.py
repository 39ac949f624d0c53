"""The tasks that move a connection's bytes, and the back-pressure that they obey.

One chunk is read, routed and flushed in one step, without a task switch; a chunk of very many lines
in several, between which other tasks run and signals are handled. A writer sleeps until its
peer's pipe was full, then waits for room. Only the two edges of a chain, the client and the agent,
are ever left unread (`Gate`): a proxy's one pipe carries both directions, and stopping it would
stop the other direction with it (perf: deadlocks met).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final

import attrs
import trio

from conductor.connection.connection import Connection
from conductor.transport.base import Transport
from conductor.transport.fds import FdTransport

__all__ = ["HIGH_WATER", "Flusher", "Gate", "pump", "write_backlog"]

_LOOK_AGAIN: Final = 1.0
"""Seconds after which an edge that is left unread is looked at: whether it is still there."""

HIGH_WATER: Final = 3 * 512 * 1024
"""Bytes that may wait for one peer before its sources are left unread."""


@attrs.define(eq=False, repr=False)
class Flusher:
    """Flushes what was written outside of a pump, and remembers who still has a backlog."""

    _dirty: list[Connection] = attrs.field(factory=list, init=False)
    _holding: bool = attrs.field(default=False, init=False)
    _work: trio.Event = attrs.field(factory=trio.Event, init=False)
    _room: trio.lowlevel.ParkingLot = attrs.field(factory=trio.lowlevel.ParkingLot, init=False)
    _flushed: trio.lowlevel.ParkingLot = attrs.field(factory=trio.lowlevel.ParkingLot, init=False)

    def mark(self, connection: Connection) -> None:
        self._dirty.append(connection)
        if not self._holding:
            self._work.set()

    def feed(self, connection: Connection, chunk: bytes) -> bool:
        """Route a chunk, then flush once everything that it caused to be written.

        True if the chunk has very many lines, and `feed_rest` is to be awaited.
        """
        return self._route(partial(connection.feed_step, chunk))

    async def feed_rest(self, connection: Connection) -> None:
        """Route the rest of a chunk in steps, between which other tasks run."""
        more = True
        while more:
            await trio.lowlevel.checkpoint()
            more = self._route(connection.route_step)

    def _route(self, step: Callable[[], bool]) -> bool:
        self._holding = True
        try:
            return step()
        finally:
            self._holding = False
            self.flush()

    def flush(self) -> None:
        if self._dirty and self._flushed:
            self._flushed.unpark_all()
        while self._dirty:
            dirty, self._dirty = self._dirty, []
            for connection in dirty:
                if not connection.flush():
                    connection.on_blocked()

    async def run(self) -> None:
        """Flush whatever is written while nothing is being read."""
        while True:
            await self._work.wait()
            self._work = trio.Event()
            self.flush()

    async def wait_flushed(self) -> None:
        """Return when something has been written, or tried to."""
        await self._flushed.park()

    def made_room(self) -> None:
        self._room.unpark_all()

    async def wait_room(self) -> None:
        await self._room.park()


@attrs.define(eq=False, repr=False)
class Gate:
    """Whether an edge may be read: not while what it feeds is over the high-water mark.

    `backlog` tells how many bytes wait for whoever has most to read. An edge that has `hung_up` is
    read to its end all the same: that it is gone must be known, however full everything is.
    """

    flusher: Flusher
    backlog: Callable[[], int]
    high_water: int = HIGH_WATER
    hung_up: Callable[[], bool] | None = None

    @property
    def open(self) -> bool:
        return self.backlog() <= self.high_water

    async def wait(self) -> None:
        while not self.open:
            if self.hung_up is None:
                await self.flusher.wait_room()
                continue
            if self.hung_up():
                return
            with trio.move_on_after(_LOOK_AGAIN):
                await self.flusher.wait_room()


async def pump(connection: Connection, flusher: Flusher, gate: Gate | None) -> None:
    """Read and route until the peer ends its stream."""
    unseen = 0
    unrouted = False

    def take(chunk: bytes) -> bool:
        """Route a chunk; true if some of it is left, or the gate is to be waited for."""
        nonlocal unseen, unrouted
        unrouted = flusher.feed(connection, chunk)
        unseen += len(chunk)
        if unrouted:
            return True
        if gate is None or unseen <= gate.high_water >> 5:  # looking is not free
            return False
        unseen = 0
        return not gate.open

    reading = True
    while reading:
        reading = await _receive_each(connection.transport, take)
        if unrouted:
            unrouted = False
            await flusher.feed_rest(connection)
        if reading and gate is not None:
            await gate.wait()
    connection.end()
    flusher.flush()


async def write_backlog(connection: Connection, flusher: Flusher) -> None:
    """Write what the peer did not take at once, whenever it takes more."""
    transport = connection.transport

    def write() -> None:
        connection.flush()
        flusher.made_room()

    if isinstance(transport, FdTransport) and transport.has_plane:
        await _write_in_plane(connection, transport, write)
        return
    blocked = trio.lowlevel.ParkingLot()
    connection.on_blocked = blocked.unpark_all
    while not connection.closed:
        if connection.outbox.size:
            await transport.wait_writable()
            write()
        else:
            await blocked.park()


async def _write_in_plane(
    connection: Connection, transport: FdTransport, write: Callable[[], None]
) -> None:
    """The same, without waking the task for each backlog (1 MiB messages: 60 µs of 1,000)."""

    def step() -> bool:
        write()
        if not connection.outbox.size and not connection.closed:
            transport.rest()
        return connection.closed

    connection.on_blocked = transport.resume
    await transport.write_each(step)


async def _receive_each(transport: Transport, take: Callable[[bytes], bool]) -> bool:
    """Call `take` with what arrives until it returns true; false at the end of the stream."""
    if isinstance(transport, FdTransport):
        return await transport.receive_each(take)
    while chunk := await transport.receive():
        if take(chunk):
            return True
    return False
