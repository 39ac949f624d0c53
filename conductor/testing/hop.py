"""A component over a memory pair: what a program is to its chain, without a process.

It has the life of a `CommandComponent`: it is initialized, started again in the other dialect if it
hangs up on the first, and fails when it ends although nobody asked it to. Who plays it, at the far
end of the pair, is for subclasses to say.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import Literal

import attrs
import trio

from conductor.components.base import Component, Host
from conductor.components.initialization import Initialization
from conductor.connection.connection import Connection
from conductor.connection.pump import pump, write_backlog
from conductor.endpoint import background
from conductor.errors import ComponentExited, StartError
from conductor.routing.envelope import Dialect
from conductor.routing.failure import Failure
from conductor.routing.handshake import Handshake
from conductor.routing.sides import Side
from conductor.routing.wire import Wire
from conductor.transport.base import CHUNK
from conductor.transport.memory import MemoryTransport, memory_pair

__all__ = ["MemoryHop"]


@attrs.define(eq=False)
class MemoryHop(Component):
    """The conductor's end of a memory pair, as a component."""

    name: str
    role: Literal["proxy", "agent"]
    dialect: Dialect | None = attrs.field(default=None, kw_only=True)
    """As a chain file would fix it; None: detect."""
    start_timeout: float = attrs.field(default=30.0, kw_only=True)
    capacity: int = attrs.field(default=CHUNK, kw_only=True)
    """Bytes that each direction of the pair holds unread."""
    starts: int = attrs.field(default=0, init=False)
    """How often it was started."""
    wire: Wire = attrs.field(init=False)
    """The conductor's end."""
    initialization: Initialization = attrs.field(init=False)
    _host: Host = attrs.field(init=False)
    _again: bool = attrs.field(default=False, init=False)
    _stopping: bool = attrs.field(default=False, init=False)
    _failed: bool = attrs.field(default=False, init=False)
    _finished: trio.Event = attrs.field(init=False)
    _ended: trio.Event = attrs.field(init=False)

    # -- what subclasses say -----------------------------------------------------------------------

    @abstractmethod
    def _connected(self, transport: MemoryTransport) -> None:
        """Take the far end of a fresh connection."""

    @abstractmethod
    async def _play(self) -> None:
        """Live at the far end."""

    @abstractmethod
    def _cut(self) -> None:
        """Break the connection, as the end of a process does."""

    def _report(self, event: str, detail: str) -> None:
        """Its wire found something odd."""

    # -- Component ---------------------------------------------------------------------------------

    @property
    def client_side(self) -> Side:
        return self.wire.plain

    @property
    def agent_side(self) -> Side | None:
        return self.wire.wrapped

    def prepare(self, host: Host) -> None:
        self._host = host
        self._again = self._stopping = self._failed = False
        self._finished, self._ended = trio.Event(), trio.Event()
        self.wire = Wire(self.name, self.role, self._report, removes_marks=self.role == "agent")
        self.wire.init = self.initialization = Initialization(
            self.wire,
            Handshake(self.role, self.dialect),
            self.start_timeout,
            failed=self._fail_start,
            restart=self._start_again,
        )
        self._start()

    async def run(self) -> None:
        try:
            async with background() as nursery:
                nursery.start_soon(self.initialization.watch)
                await self._live()
                while self._again:
                    self._again = False
                    self._start()
                    await self._live()
        finally:
            self._finished.set()
            self._ended.set()

    def close_input(self) -> None:
        self._stopping = True
        if self.wire.connection is not None:
            self.wire.connection.close_writing()

    async def wait_finished(self) -> None:
        await self._finished.wait()

    async def wait_ended(self) -> None:
        await self._ended.wait()

    def terminate(self) -> None:
        self.kill()

    def kill(self) -> None:
        self._stopping = True
        self._cut()

    def backlog(self) -> int:
        return self.wire.backlog()

    # ----------------------------------------------------------------------------------------------

    def _start(self) -> None:
        ours, theirs = memory_pair(self.capacity)
        self.starts += 1
        self._connected(theirs)
        self.wire.connection = Connection(
            ours,
            self.wire,
            self._host.flusher,
            limits=self._host.limits,
        )
        self.initialization.connected()

    async def _live(self) -> None:
        connection = self.wire.connection
        assert connection is not None
        async with background() as nursery:
            nursery.start_soon(write_backlog, connection, self._host.flusher)
            nursery.start_soon(self._play)
            await pump(connection, self._host.flusher, self._host.gate(self))
            self._finished.set()
        self._cut()
        self._gone()

    def _gone(self) -> None:
        starting = not self.initialization.done
        if starting and not self._stopping and not self._failed and self.initialization.closed():
            self.wire.disconnect(Failure.of(StartError(self.name, "it hung up")))
            return
        error: StartError | ComponentExited
        if starting:
            error = StartError(self.name, "it hung up before it was initialized")
        else:
            error = ComponentExited(self.name, "hung up")
        self.wire.disconnect(Failure.of(error))
        if not self._stopping:
            self._fail(error)

    def _start_again(self) -> None:
        self._again = True
        self._cut()

    def _fail_start(self, reason: str) -> None:
        self._fail(StartError(self.name, reason))

    def _fail(self, error: StartError | ComponentExited) -> None:
        if not self._failed:
            self._failed = True
            self._host.component_failed(self, error)
