"""The `Transport` protocol: all I/O that a connection needs.

The hot path does not go through the scheduler: `write_now` writes what the peer accepts at once and
never waits, so messages are routed and written in the step that read them. A task waits only when
the pipe is full.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, Protocol

import trio

__all__ = ["CHUNK_SIZE", "Transport", "WaitingTransport"]

CHUNK_SIZE: Final = 65536
"""Bytes read at a time, except from a descriptor (`fd_transport`)."""


class Transport(Protocol):
    """A byte stream in each direction. The directions close independently."""

    async def receive(self) -> bytes:
        """The next bytes; `b""` at the end of the stream."""

    async def receive_each(self, take: Callable[[bytes], bool]) -> bool:
        """Call `take` with each chunk until it returns true; false at the end of the stream.

        A transport may call `take` outside of the waiting task (`epoll_loop`).
        """

    def write_now(self, pieces: Sequence[bytes | memoryview]) -> int:
        """Write what fits without waiting; returns how many bytes were taken.

        Raises `conductor.errors.ConnectionClosed` if the peer has closed its reading side.
        """

    async def wait_writable(self) -> None:
        """Return when `write_now` may take more."""

    async def write_each(self, step: Callable[[], bool]) -> None:
        """Call `step` each time that `write_now` may take more, until it returns true.

        `step` calls `pause_writing` when it has nothing to write. A transport may call `step`
        outside of the waiting task (`epoll_loop`).
        """

    def pause_writing(self) -> None:
        """Do not call the step of `write_each` until `resume_writing`."""

    def resume_writing(self) -> None:
        """Call the step of `write_each` again. Idempotent."""

    def peer_closed_write(self) -> bool:
        """Whether the peer has ended its stream; bytes of it may still be unread."""

    def peer_closed_read(self) -> bool:
        """Whether the peer has closed its reading side, as far as is known without writing."""

    def close_writing(self) -> None:
        """End the outgoing stream: the peer reads EOF. Idempotent."""

    def close(self) -> None:
        """Close both directions and drop buffered bytes. Idempotent."""


class WaitingTransport:
    """Base of transports: the loops in terms of `receive` and `wait_writable`; all waits are trio
    waits. Subclasses add these two and the rest."""

    def __init__(self) -> None:
        self._writing_paused = False
        self._writing_resumed = trio.lowlevel.ParkingLot()

    async def receive(self) -> bytes:
        raise NotImplementedError

    async def wait_writable(self) -> None:
        raise NotImplementedError

    async def receive_each(self, take: Callable[[bytes], bool]) -> bool:
        while chunk := await self.receive():
            if take(chunk):
                return True
        return False

    async def write_each(self, step: Callable[[], bool]) -> None:
        while True:
            await self.wait_writable()
            if step():
                return
            while self._writing_paused:
                await self._writing_resumed.park()

    def pause_writing(self) -> None:
        self._writing_paused = True

    def resume_writing(self) -> None:
        self._writing_paused = False
        self._writing_resumed.unpark_all()
