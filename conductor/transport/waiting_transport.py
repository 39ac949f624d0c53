"""I/O loops of a transport in terms of `receive` and `wait_writable`; all waits are trio waits."""

from __future__ import annotations

from collections.abc import Callable

import trio

__all__ = ["WaitingTransport"]


class WaitingTransport:
    """Base class of transports; subclasses add `receive`, `wait_writable` and the rest."""

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
