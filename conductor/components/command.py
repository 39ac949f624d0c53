"""A component that is a program: started, connected, watched, ended with its descendants."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from typing import Literal

import attrs
import trio

from conductor.chainfile.model import Component as Spec
from conductor.components.base import Component, Host
from conductor.components.initialization import Initialization
from conductor.components.stderr import StderrTail
from conductor.connection.connection import Connection
from conductor.connection.pump import pump, write_backlog
from conductor.errors import ComponentExited, StartError
from conductor.log import Logger, get_logger
from conductor.messages import error_of
from conductor.routing.handshake import Handshake
from conductor.routing.sides import Side
from conductor.routing.wire import Wire
from conductor.transport.process import Child, SpawnError, spawn

__all__ = ["CommandComponent"]

_EXIT_GRACE = 1.0
"""Seconds that a program may go on after it has closed its stdout."""


@attrs.define(eq=False)
class CommandComponent(Component):
    """A program that speaks the protocol on stdin and stdout."""

    spec: Spec
    role: Literal["proxy", "agent"]
    amend: Callable[[bytes], bytes] | None = None
    wire: Wire = attrs.field(init=False)
    initialization: Initialization = attrs.field(init=False)
    _log: Logger = attrs.field(init=False)
    _host: Host = attrs.field(init=False)
    _child: Child | None = attrs.field(default=None, init=False)
    _stderr: StderrTail = attrs.field(factory=StderrTail, init=False)
    _stderr_read: trio.Event = attrs.field(factory=trio.Event, init=False)
    _again: bool = attrs.field(default=False, init=False)
    _stopping: bool = attrs.field(default=False, init=False)
    _failed: bool = attrs.field(default=False, init=False)
    _finished: trio.Event = attrs.field(factory=trio.Event, init=False)
    _ended: trio.Event = attrs.field(factory=trio.Event, init=False)

    def __attrs_post_init__(self) -> None:
        self._log = get_logger(component=self.spec.name)
        self.wire = Wire(self.spec.name, self.role, self._report)
        self.wire.init = self.initialization = Initialization(
            self.wire,
            Handshake(self.role, self.spec.dialect),
            self.spec.start_timeout,
            failed=self._fail_start,
            restart=self._start_again,
            amend=self.amend,
        )

    @property
    def name(self) -> str:
        return self.spec.name

    @property
    def client_side(self) -> Side:
        return self.wire.plain

    @property
    def agent_side(self) -> Side | None:
        return self.wire.wrapped

    def prepare(self, host: Host) -> None:
        self._host = host
        self._spawn()

    async def run(self) -> None:
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self.initialization.watch)
                await self._live()
                while self._again:
                    self._again = False
                    try:
                        self._spawn()
                    except StartError as exc:
                        self._fail(exc)
                        break
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

    async def wait_ended(self) -> None:
        await self._ended.wait()

    def terminate(self) -> None:
        self._stopping = True
        self._signal(signal.SIGTERM)

    def kill(self) -> None:
        self._stopping = True
        self._signal(signal.SIGKILL)

    def backlog(self) -> int:
        return 0 if self.wire.connection is None else self.wire.connection.outbox.size

    # -- one process ---------------------------------------------------------------------------

    def _spawn(self) -> None:
        spec = self.spec
        assert spec.run is not None
        env = {**(os.environ if spec.inherit_env else {}), **spec.env}
        try:
            child = spawn(spec.run, env=env, cwd=spec.cwd)
        except SpawnError as exc:
            raise self._start_error(str(exc)) from exc
        self._child = child
        self._stderr = StderrTail()
        self._stderr_read = trio.Event()
        self._log.debug("component started", pid=child.pid, command=spec.run[0])
        self.wire.connection = Connection(
            child.transport, self.wire, self._host.flusher, limit=self._host.limit
        )
        self.initialization.connected()

    async def _live(self) -> None:
        child, connection = self._child, self.wire.connection
        assert child is not None
        assert connection is not None
        exited = trio.Event()
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._drain_stderr, child)
                nursery.start_soon(self._watch_exit, child, exited)
                nursery.start_soon(write_backlog, connection, self._host.flusher)
                await pump(connection, self._host.flusher, self._host.gate(self))
                self._finished.set()
                await self._wait_exit(child, exited)
                with trio.move_on_after(_EXIT_GRACE):
                    await self._stderr_read.wait()
                nursery.cancel_scope.cancel()
        finally:
            with trio.CancelScope(shield=True):
                if child.status is None:
                    child.signal(signal.SIGKILL)
                    await child.wait()
            child.close()
        self._gone(child, connection)

    async def _wait_exit(self, child: Child, exited: trio.Event) -> None:
        """After the end of its output a program is given a moment, unless we asked it to end."""
        if self._stopping:
            await exited.wait()
            return
        with trio.move_on_after(_EXIT_GRACE):
            await exited.wait()
        if not exited.is_set():
            child.signal(signal.SIGKILL)
            await exited.wait()

    async def _watch_exit(self, child: Child, exited: trio.Event) -> None:
        status = await child.wait()
        self._log.debug("component ended", status=status)
        exited.set()

    async def _drain_stderr(self, child: Child) -> None:
        while chunk := await child.read_stderr():
            for line in self._stderr.feed(chunk, trio.current_time()):
                self._log.info("stderr", line=line)
        for line in self._stderr.end():
            self._log.info("stderr", line=line)
        if skipped := self._stderr.take_skipped():
            self._log.info("stderr was too much to log", bytes=skipped)
        self._stderr_read.set()

    def _gone(self, child: Child, connection: Connection) -> None:
        """The process is over: say so to everyone who waits for it."""
        status = child.status or "ended"
        starting = not self.initialization.done
        if starting and not self._stopping and not self._failed and self.initialization.closed():
            self.wire.disconnect(error_of(self._start_error(f"it {status}")))
            return
        error: StartError | ComponentExited
        if starting:
            error = self._start_error(f"it {status} before it was initialized")
        else:
            error = ComponentExited(
                self.name, status, stderr_tail=self._stderr.last_lines(), place=self._place
            )
        self.wire.disconnect(error_of(error))
        if not self._stopping:
            self._fail(error)

    # -- what goes wrong -------------------------------------------------------------------------

    def _start_again(self) -> None:
        """The handshake wants a fresh process, in the other dialect."""
        self._log.debug("component is started again", dialect=self.initialization.handshake.dialect)
        self._again = True
        self._signal(signal.SIGKILL)

    def _fail_start(self, reason: str) -> None:
        status = self._child.status if self._child is not None else None
        self._fail(self._start_error(f"it {status}" if status else reason))

    def _fail(self, error: StartError | ComponentExited) -> None:
        if not self._failed:
            self._failed = True
            self._host.component_failed(self, error)

    def _start_error(self, reason: str) -> StartError:
        return StartError(
            self.name,
            reason,
            command=self._shown_command(),
            status=self._child.status if self._child is not None else None,
            stderr_tail=self._stderr.last_lines(),
            place=self._place,
        )

    def _shown_command(self) -> list[str]:
        """The command as the chain file has it: what a `${VAR}` in it stands for may be secret."""
        written = self.spec.written
        return [
            written[path].text if (path := ("run", index)) in written else word
            for index, word in enumerate(self.spec.run or ())
        ]

    @property
    def _place(self) -> str | None:
        place = self.spec.places.get(("run", 0)) or self.spec.place
        return None if place is None else str(place)

    def _report(self, event: str, detail: str) -> None:
        self._log.warning(event, detail=detail)

    def _signal(self, number: signal.Signals) -> None:
        if self._child is not None:
            self._child.signal(number)
