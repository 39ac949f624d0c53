"""A component on a memory transport instead of a process.

It has the life cycle of a `SupervisedComponent`: it is initialized, started again in the other
dialect if it closes the connection during the first attempt, and fails if it ends without being
stopped. Subclasses implement the far end of the transport.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import Literal

import attrs
import trio

from conductor.background_tasks import background_tasks
from conductor.chainfile.model import START_TIMEOUT, STOP_TIMEOUT
from conductor.errors import ComponentExited, StartError
from conductor.jsonrpc.connection import Connection
from conductor.routing.component import ComponentHost
from conductor.routing.envelope import Dialect
from conductor.routing.failure_errors import FailureErrors
from conductor.routing.link import Link
from conductor.routing.proxy_meta import WithoutProxyMeta
from conductor.supervision.initialization import Initialization
from conductor.supervision.supervisor import LinkComponent
from conductor.transport.base import CHUNK_SIZE
from conductor.transport.io_loop import read_loop, write_loop
from conductor.transport.memory import MemoryTransport, memory_pair

__all__ = ["MemoryPairComponent"]


@attrs.define(eq=False)
class MemoryPairComponent(LinkComponent):
    """The conductor's end of a memory pair, as a component."""

    name: str
    role: Literal["proxy", "agent"]
    dialect: Dialect | None = attrs.field(default=None, kw_only=True)
    """The dialect, as a chain file may set it; `None` to detect it."""
    start_timeout: float = attrs.field(default=START_TIMEOUT, kw_only=True)
    stop_timeout: float = attrs.field(default=STOP_TIMEOUT, kw_only=True)
    capacity: int = attrs.field(default=CHUNK_SIZE, kw_only=True)
    """Unread bytes that each direction of the transport can hold."""
    starts: int = attrs.field(default=0, init=False)
    """Number of starts."""
    initialization: Initialization = attrs.field(init=False)
    _host: ComponentHost = attrs.field(init=False)
    _restart_pending: bool = attrs.field(default=False, init=False)
    _stopping: bool = attrs.field(default=False, init=False)
    _failed: bool = attrs.field(default=False, init=False)

    def __attrs_pre_init__(self) -> None:
        super().__init__()

    # -- for subclasses ----------------------------------------------------------------------------

    @abstractmethod
    def _on_connected(self, transport: MemoryTransport) -> None:
        """Called with the far end of each new connection."""

    @abstractmethod
    async def _run_peer(self) -> None:
        """Run the far end, until it ends."""

    @abstractmethod
    def _disconnect(self) -> None:
        """Close the connection abruptly, as the end of a process does."""

    def _report(self, event: str, detail: str, message: dict[str, object]) -> None:
        """Ignore protocol violations that the link reports."""

    # -- Component ---------------------------------------------------------------------------------

    def prepare(self, host: ComponentHost) -> None:
        self._host = host
        self._restart_pending = self._stopping = self._failed = False
        self._drained, self._ended = trio.Event(), trio.Event()
        self.link: Link = Link(self.name, self.role, self._report)
        if self.role == "agent":
            self.link.plain.insert(WithoutProxyMeta())
        self.initialization = Initialization(
            self.link,
            self.dialect,
            self.start_timeout,
            on_failed=self._fail_start,
            restart_process=self._start_again,
        )
        self._start()

    async def run(self) -> None:
        try:
            async with background_tasks() as nursery:
                nursery.start_soon(self.initialization.enforce_timeout)
                await self._run_once()
                while self._restart_pending:
                    self._restart_pending = False
                    self._start()
                    await self._run_once()
        finally:
            self._drained.set()
            self._ended.set()

    def close_input(self) -> None:
        self._stopping = True
        if self.link.connection is not None:
            self.link.connection.close_writing()

    def terminate(self) -> None:
        self.kill()

    def kill(self) -> None:
        self._stopping = True
        self._disconnect()

    # ----------------------------------------------------------------------------------------------

    def _start(self) -> None:
        near, far = memory_pair(self.capacity)
        self.starts += 1
        self._on_connected(far)
        self.link.connect(Connection(near, self.link, self._host.flusher, limits=self._host.limits))
        self.initialization.on_connected()

    async def _run_once(self) -> None:
        connection = self.link.connection
        assert connection is not None
        async with background_tasks() as nursery:
            nursery.start_soon(write_loop, connection, self._host.flusher)
            nursery.start_soon(self._run_peer)
            await read_loop(connection, self._host.flusher, self._host.read_gate(self))
            self._drained.set()
        self._disconnect()
        self._on_ended()

    def _on_ended(self) -> None:
        starting = not self.initialization.done
        if starting and not self._stopping and not self._failed and self.initialization.on_closed():
            self.link.disconnect(FailureErrors.of(StartError(self.name, "it hung up")))
            return
        error: StartError | ComponentExited
        if starting:
            error = StartError(self.name, "it hung up before it was initialized")
        else:
            error = ComponentExited(self.name, "hung up")
        self.link.disconnect(FailureErrors.of(error))
        if not self._stopping:
            self._fail(error)

    def _start_again(self) -> None:
        self._restart_pending = True
        self._disconnect()

    def _fail_start(self, reason: str) -> None:
        self._fail(StartError(self.name, reason))

    def _fail(self, error: StartError | ComponentExited) -> None:
        if not self._failed:
            self._failed = True
            self._host.component_failed(self, error)
