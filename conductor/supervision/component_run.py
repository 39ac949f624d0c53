"""One life of a component behind a link: from the start of its process, or connection, to its end.

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

from conductor.jsonrpc.connection import Connection
from conductor.log import Logger
from conductor.supervision.endpoint import Endpoint
from conductor.supervision.stderr import StderrTail
from conductor.transport.io_loop import Flusher, ReadGate, read_loop, write_loop

__all__ = ["ComponentRun"]

_EXIT_GRACE: Final = 1.0
"""Seconds that a program may go on after it closed its stdout, or its pipes after it ended."""


@attrs.define(eq=False, repr=False)
class ComponentRun:
    """`stop` is set when it is asked to end; `drained` is set here, once it has said all then."""

    endpoint: Endpoint
    connection: Connection
    flusher: Flusher
    stop: trio.Event
    drained: trio.Event
    log: Logger
    stderr: StderrTail = attrs.field(factory=StderrTail, init=False)
    end_cause: str | None = attrs.field(default=None, init=False)
    """Why we ended it ourselves, where we did."""
    _exited: trio.Event = attrs.field(factory=trio.Event, init=False)
    _stderr_read: trio.Event = attrs.field(factory=trio.Event, init=False)

    @property
    def end_reason(self) -> str:
        """For people, as one says it of a component."""
        return self.end_cause or self.endpoint.status or "ended"

    def on_success(self) -> None:
        """What it wrote to stderr until now explains no later failure, also where it is not read
        yet: stdout may be read first."""
        self.stderr.forget(self.endpoint.stderr_waiting())

    def end(self, end_cause: str) -> None:
        """It has failed: kill it. The first cause is the one that is told."""
        self.end_cause = self.end_cause or end_cause
        self.endpoint.signal(signal.SIGKILL)

    async def run(
        self, read_gate: ReadGate | None, background: Iterable[Callable[[], Awaitable[Any]]]
    ) -> None:
        """Live, and have these functions run meanwhile."""
        endpoint = self.endpoint
        try:
            async with trio.open_nursery() as nursery:
                for function in background:
                    nursery.start_soon(function)
                nursery.start_soon(self._drain_stderr)
                nursery.start_soon(self._watch_exit)
                nursery.start_soon(self._write)
                await self._pump(read_gate)
                await self._wait_exit()
                with trio.move_on_after(_EXIT_GRACE):
                    await self._stderr_read.wait()
                nursery.cancel_scope.cancel()
        finally:
            with trio.CancelScope(shield=True):
                if endpoint.status is None:
                    endpoint.signal(signal.SIGKILL)
                    await endpoint.wait()
            endpoint.close()

    async def _pump(self, read_gate: ReadGate | None) -> None:
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
            await read_loop(self.connection, self.flusher, read_gate)
            nursery.cancel_scope.cancel()

    async def _write(self) -> None:
        """A program that reads nothing any more, while we have more to say, has failed."""
        await write_loop(self.connection, self.flusher)
        if self.stop.is_set():
            return
        with trio.move_on_after(_EXIT_GRACE):
            await self._exited.wait()
        if not self._exited.is_set() and not self.stop.is_set():
            self.end("closed its stdin")

    async def _wait_exit(self) -> None:
        """After the end of its output a program is given a moment, unless we asked it to end."""
        if self.stop.is_set():
            self.drained.set()
            await self._exited.wait()
            return
        with trio.move_on_after(_EXIT_GRACE):
            await self._exited.wait()
        if not self._exited.is_set():
            self.end("closed its stdout")
            await self._exited.wait()

    async def _watch_exit(self) -> None:
        status = await self.endpoint.wait()
        self.log.debug("component ended", status=status)
        self._exited.set()

    async def _drain_stderr(self) -> None:
        while chunk := await self.endpoint.read_stderr():
            for line in self.stderr.feed(chunk, trio.current_time()):
                self.log.component_stderr("stderr", line=line)
        for line in self.stderr.end():
            self.log.component_stderr("stderr", line=line)
        if skipped := self.stderr.take_skipped():
            self.log.component_stderr("stderr rate limit exceeded", bytes=skipped)
        self._stderr_read.set()
