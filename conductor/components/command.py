"""A component that is a program: started, connected, watched, started again, ended with all that
it started.

A program that fails after it was initialized is dealt with as its contract says (`contract`). While
it is started again, what is sent to it waits; what it owed is answered at once, with an error that
names it, because nobody knows how far it got.
"""

from __future__ import annotations

import os
import random
import signal
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

import attrs
import msgspec
import trio

from conductor.chainfile.model import Component as Spec
from conductor.components.base import Component, Host
from conductor.components.contract import Bypass, Contract, Decision, EndChain, Restart
from conductor.components.initialization import Initialization
from conductor.components.restoring import (
    RestoreTimeout,
    initialize_again,
    restore_agent,
    restore_proxy,
)
from conductor.components.stderr import Allowance, StderrTail
from conductor.components.watch import Due, Rung, Stalled, TimedOut, Watch
from conductor.components.watching import Watching
from conductor.connection.calls import Call
from conductor.connection.connection import Connection
from conductor.connection.pump import pump, write_backlog
from conductor.errors import ComponentExited, ConnectionClosed, RequestError, StartError
from conductor.log import Logger, get_logger
from conductor.messages import error_of
from conductor.routing.handshake import Handshake
from conductor.routing.sides import Side
from conductor.routing.wire import Wire
from conductor.transport.process import Child, SpawnError, spawn

__all__ = ["CommandComponent"]

_EXIT_GRACE = 1.0
"""Seconds that a program may go on after it closed its stdout, or its pipes after it ended."""


@attrs.define(eq=False)
class CommandComponent(Component):
    """A program that speaks the protocol on stdin and stdout."""

    spec: Spec
    role: Literal["proxy", "agent"]
    amend: Callable[[bytes], bytes] | None = None
    wire: Wire = attrs.field(init=False)
    initialization: Initialization = attrs.field(init=False)
    contract: Contract = attrs.field(init=False)
    _watching: Watching | None = attrs.field(default=None, init=False)
    _log: Logger = attrs.field(init=False)
    host: Host = attrs.field(init=False)
    _child: Child | None = attrs.field(default=None, init=False)
    _stderr: StderrTail = attrs.field(factory=StderrTail, init=False)
    _stderr_read: trio.Event = attrs.field(factory=trio.Event, init=False)
    _next_start: float | None = attrs.field(default=None, init=False)
    """When the next process is to be started, if one is."""
    _was_initialized: bool = attrs.field(default=False, init=False)
    _stopping: bool = attrs.field(default=False, init=False)
    _failed: bool = attrs.field(default=False, init=False)
    _reports: Allowance = attrs.field(factory=Allowance, init=False)
    _cause: str | None = attrs.field(default=None, init=False)
    """Why we ended the process ourselves, where we did."""
    _finished: trio.Event = attrs.field(factory=trio.Event, init=False)
    _stop: trio.Event = attrs.field(factory=trio.Event, init=False)
    _ended: trio.Event = attrs.field(factory=trio.Event, init=False)

    def __attrs_post_init__(self) -> None:
        self._log = get_logger(component=self.spec.name)
        self.wire = Wire(self.spec.name, self.role, self._report)
        self.contract = Contract.of(self.spec, self.role)
        self.initialization = self._new_initialization(self.spec.dialect)
        if self.spec.request_timeout or self.spec.stall_timeout is not None:
            watch = Watch(self.spec.request_timeout, self.spec.stall_timeout, self.spec.on_stall)
            self._watching = self.wire.observer = Watching(self.wire, watch, self._on_due)

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
        self.host = host
        self._spawn()

    async def run(self) -> None:
        try:
            await self._live()
            while self._next_start is not None and not self._stopping:
                with trio.move_on_at(self._next_start):
                    await self._stop.wait()
                    break
                self._next_start = None
                await self._live_again()
        finally:
            self.wire.release()  # nobody is left to wait for
            self.host.flusher.made_room()
            self._finished.set()
            self._ended.set()

    def close_input(self) -> None:
        self._begin_to_stop()
        if self.wire.connection is not None:
            self.wire.connection.close_writing()

    async def wait_finished(self) -> None:
        await self._finished.wait()

    async def wait_ended(self) -> None:
        await self._ended.wait()

    def terminate(self) -> None:
        self._begin_to_stop()
        self._signal(signal.SIGTERM)

    def kill(self) -> None:
        self._begin_to_stop()
        self._signal(signal.SIGKILL)

    def backlog(self) -> int:
        connection = self.wire.connection
        return self.wire.held_size + (0 if connection is None else connection.outbox.size)

    # -- one process ---------------------------------------------------------------------------

    def _new_initialization(self, dialect: Literal["proxy", "_proxy"] | None) -> Initialization:
        self.wire.init = initialization = Initialization(
            self.wire,
            Handshake(self.role, dialect),
            self.spec.start_timeout,
            failed=self._fail_start,
            restart=self._start_in_other_dialect,
            amend=self.amend,
        )
        return initialization

    def _spawn(self) -> None:
        spec = self.spec
        assert spec.run is not None
        env = {**(os.environ if spec.inherit_env else {}), **spec.env}
        self._child, self._cause = None, None
        self._stderr = StderrTail()
        try:
            child = spawn(spec.run, env=env, cwd=spec.cwd)
        except SpawnError as exc:
            raise self._start_error(str(exc)) from exc
        self._child = child
        self._stderr_read = trio.Event()
        self._log.debug("component started", pid=child.pid, command=spec.run[0])
        self.wire.connection = Connection(
            child.transport, self.wire, self.host.flusher, limits=self.host.limits
        )
        self.initialization.connected()

    async def _live(self, *, again: bool = False) -> None:
        """From the start of a process to its end."""
        child, connection = self._child, self.wire.connection
        assert child is not None
        assert connection is not None
        exited = trio.Event()
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self.initialization.watch)
                nursery.start_soon(self._drain_stderr, child)
                nursery.start_soon(self._watch_exit, child, exited)
                nursery.start_soon(self._write, child, connection, exited)
                if self._watching is not None:
                    nursery.start_soon(self._watching.run)
                if again:
                    nursery.start_soon(self._restore)
                await self._pump(connection, exited)
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
        self._gone(child)

    async def _pump(self, connection: Connection, exited: trio.Event) -> None:
        """Route what the program writes, to the end of it.

        The end comes when all who hold its stdout have closed it; what it started and took out of
        its process group may keep it open, and is not waited for.
        """
        async with trio.open_nursery() as nursery:

            async def until_exit() -> None:
                await exited.wait()
                await trio.sleep(_EXIT_GRACE)
                nursery.cancel_scope.cancel()

            nursery.start_soon(until_exit)
            await pump(connection, self.host.flusher, self.host.gate(self))
            nursery.cancel_scope.cancel()

    async def _write(self, child: Child, connection: Connection, exited: trio.Event) -> None:
        """A program that reads nothing any more, while we have more to say, has failed."""
        await write_backlog(connection, self.host.flusher)
        if self._stopping:
            return
        with trio.move_on_after(_EXIT_GRACE):
            await exited.wait()
        if not exited.is_set() and not self._stopping:
            self._cause = self._cause or "closed its stdin"
            child.signal(signal.SIGKILL)

    async def _wait_exit(self, child: Child, exited: trio.Event) -> None:
        """After the end of its output a program is given a moment, unless we asked it to end."""
        if self._stopping:
            self._finished.set()
            await exited.wait()
            return
        with trio.move_on_after(_EXIT_GRACE):
            await exited.wait()
        if not exited.is_set():
            self._cause = self._cause or "closed its stdout"
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

    # -- the next process --------------------------------------------------------------------------

    async def _live_again(self) -> None:
        if self._was_initialized:
            self.initialization = self._new_initialization(self.wire_dialect)
        try:
            self._spawn()
        except StartError as exc:
            if self._was_initialized:
                self._after_failure(exc)
            else:
                self._fail(exc)
            return
        await self._live(again=self._was_initialized)

    @property
    def wire_dialect(self) -> Literal["proxy", "_proxy"] | None:
        return self.wire.dialect if self.role == "proxy" else None

    async def _restore(self) -> None:
        """Bring the new process to where its predecessor was, then let through what waited."""
        wire, recollection, timeout = self.wire, self.wire.recollection, self.spec.start_timeout
        try:
            result = await initialize_again(wire, self.initialization, recollection)
            if self.role == "proxy":
                lost = await restore_proxy(wire, recollection, timeout, self._log)
            else:
                lost = await restore_agent(wire, recollection, result, timeout, self._log)
        except (RequestError, ConnectionClosed) as exc:
            self._cause = self._cause or f"could not be initialized again: {exc}"
            self._signal(signal.SIGKILL)
            return
        except RestoreTimeout as exc:
            self._cause = self._cause or str(exc)
            self._signal(signal.SIGKILL)
            return
        self._log.warning("component was started again", lost_sessions=lost)
        if self.role == "agent":
            wire.lost.update(lost)
            self._end_turns(result)
        self.host.restarted(self, lost)
        wire.release()
        self.host.flusher.made_room()

    def _end_turns(self, result: Mapping[str, Any]) -> None:
        """In version 2 a turn is not a request that could be answered: say that there is none."""
        if result.get("protocolVersion") != 2:
            return
        update = {"sessionUpdate": "state_update", "state": "idle"}
        for session in (*self.wire.recollection.sessions, *self.wire.lost):
            params = msgspec.json.encode({"sessionId": session, "update": update})
            self.wire.plain.neighbour.notify("session/update", params)

    def _gone(self, child: Child) -> None:
        """The process is over: say so to everyone who waits for it."""
        if self._was_initialized or self.initialization.done:
            self._was_initialized = True
            error = ComponentExited(
                self.name,
                self._how_it_ended(child),
                stderr_tail=self._stderr.last_lines(),
                place=self._place,
            )
            self._after_failure(error)
            return
        error_at_start = self._start_error(f"it {self._how_it_ended(child)}")
        if not self._stopping and not self._failed and self.initialization.closed():
            self._next_start = trio.current_time()
            self.wire.disconnect(error_of(error_at_start))
            return
        self.wire.disconnect(error_of(error_at_start))
        if not self._stopping:
            self._fail(error_at_start)

    def _after_failure(self, error: ComponentExited | StartError) -> None:
        """It worked once, and failed: do as the contract says."""
        if self._stopping:
            self.wire.disconnect(error_of(error))
            self.host.flusher.made_room()
            return
        decision: Decision = self.contract.after_failure(trio.current_time(), random.random())
        error.next = str(decision)
        self._log.error("component failed", error=str(error), next=str(decision))
        match decision:
            case Restart(delay):
                self._next_start = trio.current_time() + delay
                if self.wire.held is None:
                    self.wire.start_holding()
                self.wire.disconnect(error_of(error))
            case Bypass():
                self.wire.disconnect(error_of(error))
                self.host.bypass(self, error)
                self.wire.pass_by()
            case EndChain():
                self.wire.disconnect(error_of(error))
                self.wire.release()
                self._fail(error)
        self.host.flusher.made_room()  # what waited for it is gone

    def _on_due(self, due: Due) -> None:
        """A request takes too long, or a turn is silent: say so, and climb the ladder."""
        match due:
            case TimedOut(call, seconds):
                reason = f"{self.name} did not answer {call.method} within {seconds:g} s"
                self._log.warning("request timed out", method=call.method, seconds=seconds)
                self.wire.give_up(call, f"{reason} (request_timeout)")
            case Stalled(session, calls, rung, seconds):
                self._log.warning("turn is silent", session=session, seconds=seconds, rung=rung)
                self._climb(session, calls, rung, seconds)

    def _climb(self, session: str, calls: Sequence[Call], rung: Rung, seconds: float) -> None:
        match rung:
            case "report":
                text = f"{self.name} has been silent for {seconds:.3g} s"
                self.host.tell(session, text)
            case "cancel":
                params = msgspec.json.encode({"sessionId": session})
                self.wire.plain.notify("session/cancel", params)
            case "cancel_request":
                for call in calls:
                    self.wire.plain.cancel(call)
            case "restart":
                self._cause = f"was silent for {seconds:.3g} s (stall_timeout)"
                self._signal(signal.SIGKILL)

    # -- what goes wrong -------------------------------------------------------------------------

    def _start_in_other_dialect(self) -> None:
        """The handshake wants a fresh process."""
        self._log.debug("component is started again", dialect=self.initialization.handshake.dialect)
        self._signal(signal.SIGKILL)

    def _fail_start(self, reason: str) -> None:
        if self._was_initialized:
            self._cause = reason
            self._signal(signal.SIGKILL)
            return
        how = self._cause or (self._child.status if self._child is not None else None)
        self._fail(self._start_error(f"it {how}" if how else reason))

    def _fail(self, error: StartError | ComponentExited) -> None:
        if not self._failed:
            self._failed = True
            self.host.component_failed(self, error)

    def _how_it_ended(self, child: Child) -> str:
        return self._cause or child.status or "ended"

    def _start_error(self, reason: str) -> StartError:
        status = self._child.status if self._child is not None else None
        return StartError(
            self.name,
            reason,
            command=self._shown_command(),
            status=None if self._cause else status,
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
        if self._reports.take(trio.current_time()):
            skipped = self._reports.take_skipped()
            more = {"skipped": skipped} if skipped else {}
            self._log.warning(event, detail=detail, **more)

    def _begin_to_stop(self) -> None:
        self._stopping = True
        self._stop.set()

    def _signal(self, number: signal.Signals) -> None:
        if self._child is not None:
            self._child.signal(number)
