"""The far end of a component on another machine: what a child process is to a program's wire.

The connection of the component holds one end of a memory pair; a carrier moves lines between the
other end and the network, until one of the two is over. A carrier is one function per kind of
network (`websocket`, `http`, `unix`); it calls `reached` when the other machine has answered, and
`end` with how it ended, in words that go after the component's name.
"""

from __future__ import annotations

import signal
from collections.abc import Awaitable, Callable

import attrs
import trio

from conductor.errors import describe
from conductor.log import get_logger
from conductor.network.line_channel import LineChannel
from conductor.network.tcp import Unreachable
from conductor.transport.memory import MemoryTransport, memory_pair

__all__ = ["RelayFunction", "RemoteTransport"]

log = get_logger(component="conductor")

RelayFunction = Callable[["RemoteTransport"], Awaitable[None]]


@attrs.define(eq=False)
class RemoteTransport:
    """One connection to a component on another machine, from `wait` to its end."""

    location: str
    """A URL or a path, for people."""
    max_message_bytes: int
    _carry: RelayFunction
    transport: MemoryTransport = attrs.field(init=False)
    network: MemoryTransport = attrs.field(init=False)
    """The carrier's end: as it is, or as `lines`."""
    lines: LineChannel = attrs.field(init=False)
    status: str | None = attrs.field(default=None, init=False)
    reached: bool = attrs.field(default=False, init=False)
    """Whether the other machine has ever answered."""
    is_lost: bool = attrs.field(default=False, init=False)
    """Nobody is there to say goodbye to."""
    _scope: trio.CancelScope = attrs.field(factory=trio.CancelScope, init=False)

    def __attrs_post_init__(self) -> None:
        self.transport, self.network = memory_pair()
        self.lines = LineChannel(self.network)

    async def wait(self) -> str:
        """Be the connection; return how it ended, for people."""
        try:
            with self._scope:
                await self._carry(self)
        except Unreachable as exc:
            self.status = self.status or str(exc)
        except Exception as exc:  # of a library below us: it ends this connection, nothing else
            log.error("connection failed", location=self.location, error=_error_text(exc))
            self.status = self.status or f"failed at {self.location}: {_error_text(exc)}"
        finally:
            self.status = self.status or f"was disconnected from {self.location}"
            self.lines.close()
        return self.status

    def end(self, how: str) -> None:
        """It is over, in this way, whatever the carrier still does. The first way counts."""
        if self.status is None:
            self.status = how
        self._scope.cancel()

    def lost(self, why: str) -> None:
        self.is_lost = True
        self.end(f"lost its connection to {self.location}: {why}")

    async def read_stderr(self) -> bytes:
        """There is none."""
        return b""

    def stderr_waiting(self) -> int:
        return 0

    def signal(self, number: signal.Signals) -> None:
        """What would end a process cuts the connection."""
        if number in (signal.SIGTERM, signal.SIGKILL):
            self._scope.cancel()

    def close(self) -> None:
        self.transport.close()


def _error_text(error: BaseException) -> str:
    """The first of the errors of several tasks, in a few words."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return describe(error)
