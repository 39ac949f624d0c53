"""One life of a component behind a wire: from the start of its process, or connection, to its end.

What it says is routed, what waits for it is written, its stderr is read and its exit awaited. It
ends when it has exited and its pipes are read to the end; with what it leaves behind only a moment
is lost. One that closes a pipe but goes on has failed, and is killed.
"""

from __future__ import annotations

import signal
from collections.abc import Awaitable, Callable, Iterable
from typing import Any, Final

import attrs
import trio

from conductor.components.far_end import FarEnd
from conductor.components.stderr import StderrTail
from conductor.connection.connection import Connection
from conductor.connection.pump import Flusher, Gate, pump, write_backlog
from conductor.log import Logger

__all__ = ["Life"]

_EXIT_GRACE: Final = 1.0
"""Seconds that a program may go on after it closed its stdout, or its pipes after it ended."""


@attrs.define(eq=False, repr=False)
class Life:
    """`stop` is set when it is asked to end; `finished` is set here, once it has said all then."""

    far_end: FarEnd
    connection: Connection
    flusher: Flusher
    stop: trio.Event
    finished: trio.Event
    log: Logger
    stderr: StderrTail = attrs.field(factory=StderrTail, init=False)
    cause: str | None = attrs.field(default=None, init=False)
    """Why we ended it ourselves, where we did."""
    _exited: trio.Event = attrs.field(factory=trio.Event, init=False)
    _stderr_read: trio.Event = attrs.field(factory=trio.Event, init=False)

    @property
    def how_it_ended(self) -> str:
        """For people, as one says it of a component."""
        return self.cause or self.far_end.status or "ended"

    def succeeded(self) -> None:
        """What it wrote to stderr until now explains no later failure, also where it is not read
        yet: stdout may be read first."""
        self.stderr.forget(self.far_end.stderr_waiting())

    def end(self, cause: str) -> None:
        """It has failed: kill it. The first cause is the one that is told."""
        self.cause = self.cause or cause
        self.far_end.signal(signal.SIGKILL)

    async def run(self, gate: Gate | None, beside: Iterable[Callable[[], Awaitable[Any]]]) -> None:
        """Live, and have these functions run meanwhile."""
        far_end = self.far_end
        try:
            async with trio.open_nursery() as nursery:
                for function in beside:
                    nursery.start_soon(function)
                nursery.start_soon(self._drain_stderr)
                nursery.start_soon(self._watch_exit)
                nursery.start_soon(self._write)
                await self._pump(gate)
                await self._wait_exit()
                with trio.move_on_after(_EXIT_GRACE):
                    await self._stderr_read.wait()
                nursery.cancel_scope.cancel()
        finally:
            with trio.CancelScope(shield=True):
                if far_end.status is None:
                    far_end.signal(signal.SIGKILL)
                    await far_end.wait()
            far_end.close()

    async def _pump(self, gate: Gate | None) -> None:
        """Route what the program writes, to the end of it.

        The end comes when all who hold its stdout have closed it; what it started and took out of
        its process group may keep it open, and is not waited for.
        """
        async with trio.open_nursery() as nursery:

            async def until_exit() -> None:
                await self._exited.wait()
                await trio.sleep(_EXIT_GRACE)
                nursery.cancel_scope.cancel()

            nursery.start_soon(until_exit)
            await pump(self.connection, self.flusher, gate)
            nursery.cancel_scope.cancel()

    async def _write(self) -> None:
        """A program that reads nothing any more, while we have more to say, has failed."""
        await write_backlog(self.connection, self.flusher)
        if self.stop.is_set():
            return
        with trio.move_on_after(_EXIT_GRACE):
            await self._exited.wait()
        if not self._exited.is_set() and not self.stop.is_set():
            self.end("closed its stdin")

    async def _wait_exit(self) -> None:
        """After the end of its output a program is given a moment, unless we asked it to end."""
        if self.stop.is_set():
            self.finished.set()
            await self._exited.wait()
            return
        with trio.move_on_after(_EXIT_GRACE):
            await self._exited.wait()
        if not self._exited.is_set():
            self.end("closed its stdout")
            await self._exited.wait()

    async def _watch_exit(self) -> None:
        status = await self.far_end.wait()
        self.log.debug("component ended", status=status)
        self._exited.set()

    async def _drain_stderr(self) -> None:
        while chunk := await self.far_end.read_stderr():
            for line in self.stderr.feed(chunk, trio.current_time()):
                self.log.component_stderr("stderr", line=line)
        for line in self.stderr.end():
            self.log.component_stderr("stderr", line=line)
        if skipped := self.stderr.take_skipped():
            self.log.component_stderr("stderr was too much to log", bytes=skipped)
        self._stderr_read.set()
