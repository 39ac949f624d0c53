"""A component over a memory transport: what `CommandComponent` is, without a process."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import attrs
import trio

from conductor.components.base import Component, Host
from conductor.components.initialization import Initialization
from conductor.connection.connection import Connection
from conductor.connection.pump import pump, write_backlog
from conductor.errors import ComponentExited, StartError
from conductor.messages import error_of
from conductor.routing.envelope import Dialect
from conductor.routing.handshake import Handshake
from conductor.routing.sides import Side
from conductor.routing.wire import Wire
from conductor.transport.base import CHUNK
from conductor.transport.memory import memory_pair

from .peer import Peer


@attrs.define(eq=False)
class MemoryComponent(Component):
    """Speaks the wire protocol with `peer`, which a test (or `make_peer`) plays.

    It has ended when the peer has ended its stream. `kill` breaks the pipe, as a dead process does.
    """

    name: str
    role: Literal["proxy", "agent"] = "proxy"
    dialect: Dialect | None = None
    start_timeout: float = 30.0
    capacity: int = CHUNK
    make_peer: Callable[..., Peer] = Peer
    starts: int = attrs.field(default=0, init=False)
    reports: list[tuple[str, str]] = attrs.field(factory=list, init=False)
    """What the component did oddly."""
    peer: Peer = attrs.field(init=False)
    wire: Wire = attrs.field(init=False)
    initialization: Initialization = attrs.field(init=False)
    terminated: bool = attrs.field(default=False, init=False)
    killed: bool = attrs.field(default=False, init=False)
    _host: Host = attrs.field(init=False)
    _again: bool = attrs.field(default=False, init=False)
    _stopping: bool = attrs.field(default=False, init=False)
    _failed: bool = attrs.field(default=False, init=False)
    _finished: trio.Event = attrs.field(factory=trio.Event, init=False)
    _ended: trio.Event = attrs.field(factory=trio.Event, init=False)

    def __attrs_post_init__(self) -> None:
        self.wire = Wire(self.name, self.role, lambda *report: self.reports.append(report))
        self.wire.init = self.initialization = Initialization(
            self.wire,
            Handshake(self.role, self.dialect),
            self.start_timeout,
            failed=lambda reason: self._fail(StartError(self.name, reason)),
            restart=self._restart,
        )

    @property
    def client_side(self) -> Side:
        return self.wire.plain

    @property
    def agent_side(self) -> Side | None:
        return self.wire.wrapped

    def prepare(self, host: Host) -> None:
        self._host = host
        self._connect()

    async def run(self) -> None:
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self.initialization.watch)
                await self._live()
                while self._again:
                    self._again = False
                    self._connect()
                    await self._live()
                nursery.cancel_scope.cancel()
        finally:
            self._finished.set()
            self._ended.set()

    def close_input(self) -> None:
        self._stopping = True
        if self.wire.connection is not None:
            self.wire.connection.close_writing()

    async def wait_finished(self) -> None:
        await self._finished.wait()

    def terminate(self) -> None:
        self._stopping = self.terminated = True
        self.peer.close()

    def kill(self) -> None:
        self._stopping = self.killed = True
        self.peer.transport.close()

    def backlog(self) -> int:
        return 0 if self.wire.connection is None else self.wire.connection.outbox.size

    async def wait_ended(self) -> None:
        await self._ended.wait()

    def _connect(self) -> None:
        self.starts += 1
        ours, theirs = memory_pair(self.capacity)
        self.peer = self.make_peer(theirs, f"{self.name}#{self.starts}")
        self.wire.connection = Connection(
            ours, self.wire, self._host.flusher, limits=self._host.limits
        )
        self.initialization.connected()

    async def _live(self) -> None:
        connection = self.wire.connection
        assert connection is not None
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self.peer.run)
            nursery.start_soon(write_backlog, connection, self._host.flusher)
            await pump(connection, self._host.flusher, self._host.gate(self))
            self._finished.set()
            nursery.cancel_scope.cancel()
        self.peer.transport.close()
        self._gone()

    def _gone(self) -> None:
        starting = not self.initialization.done
        if starting and not self._stopping and not self._failed and self.initialization.closed():
            self.wire.disconnect(error_of(StartError(self.name, "it ended")))
            return
        error: StartError | ComponentExited
        if starting:
            error = StartError(self.name, "it ended before it was initialized")
        else:
            error = ComponentExited(self.name, "ended")
        self.wire.disconnect(error_of(error))
        if not self._stopping:
            self._fail(error)

    def _restart(self) -> None:
        self._again = True
        self.peer.transport.close()

    def _fail(self, error: StartError | ComponentExited) -> None:
        if not self._failed:
            self._failed = True
            self._host.component_failed(self, error)
