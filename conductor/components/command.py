"""A component behind a wire: started, connected, watched, started again, ended with all that it
started.

It is a program, or it is on another machine: what is at the far end of the wire (`far_end`) makes
no difference here. One that fails after it was initialized is dealt with as its contract says
(`contract`). While it is started again, what is sent to it waits; what it owed is answered at once,
with an error that names it, because nobody knows how far it got.
"""

from __future__ import annotations

import random
import signal
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

import attrs
import msgspec
import trio

from conductor.chainfile.model import Component as Spec
from conductor.chainfile.model import ValuePath
from conductor.components.base import Component, Host
from conductor.components.contract import Bypass, Contract, Decision, EndChain, Restart
from conductor.components.far_end import FarEnd, Opener, SpawnError, opener
from conductor.components.initialization import Initialization
from conductor.components.restoring import (
    RestoreTimeout,
    initialize_again,
    restore_agent,
    restore_proxy,
)
from conductor.components.stderr import Allowance, StderrTail
from conductor.connection.calls import Call
from conductor.connection.connection import Connection
from conductor.connection.pump import pump, write_backlog
from conductor.errors import ComponentExited, ConnectionClosed, RequestError, StartError
from conductor.log import Logger, get_logger
from conductor.messages import error_of
from conductor.routing.handshake import Handshake
from conductor.routing.sides import Side
from conductor.routing.wire import Wire

if TYPE_CHECKING:
    from conductor.components.watch import Due, Rung
    from conductor.components.watching import Watching

__all__ = ["CommandComponent"]

_EXIT_GRACE = 1.0
"""Seconds that a program may go on after it closed its stdout, or its pipes after it ended."""


@attrs.define(eq=False, repr=False)
class CommandComponent(Component):
    """A program that speaks the protocol on stdin and stdout, or what does so elsewhere."""

    spec: Spec
    role: Literal["proxy", "agent"]
    amend: Callable[[bytes], bytes] | None = None
    wire: Wire = attrs.field(init=False)
    initialization: Initialization = attrs.field(init=False)
    contract: Contract = attrs.field(init=False)
    _watching: Watching | None = attrs.field(default=None, init=False)
    _log: Logger = attrs.field(init=False)
    host: Host = attrs.field(init=False)
    _far_end: FarEnd | None = attrs.field(default=None, init=False)
    _open: Opener = attrs.field(init=False)
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
        self._open = opener(self.spec)
        self.wire = Wire(self.spec.name, self.role, self._report)
        self.contract = Contract.of(self.spec, self.role)
        self.initialization = self._new_initialization(self.spec.dialect)
        if self.spec.request_timeout or self.spec.stall_timeout is not None:
            from conductor.components.watch import Watch
            from conductor.components.watching import Watching

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

    @property
    def stop_timeout(self) -> float:
        return self.spec.stop_timeout

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
        return self.wire.backlog()

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
        self._far_end, self._cause = None, None
        self._stderr = StderrTail()
        limits = self.host.limits
        try:
            far_end = self._open(limits.max_message_bytes)
        except SpawnError as exc:
            raise self._start_error(str(exc)) from exc
        self._far_end = far_end
        self._stderr_read = trio.Event()
        self.wire.connection = Connection(
            far_end.transport, self.wire, self.host.flusher, limits=limits
        )
        self.initialization.connected()

    async def _live(self, *, again: bool = False) -> None:
        """From the start of a process to its end."""
        far_end, connection = self._far_end, self.wire.connection
        assert far_end is not None
        assert connection is not None
        exited = trio.Event()
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self.initialization.watch)
                nursery.start_soon(self._drain_stderr, far_end)
                nursery.start_soon(self._watch_exit, far_end, exited)
                nursery.start_soon(self._write, far_end, connection, exited)
                if self._watching is not None:
                    nursery.start_soon(self._watching.run)
                if again:
                    nursery.start_soon(self._restore)
                await self._pump(connection, exited)
                await self._wait_exit(far_end, exited)
                with trio.move_on_after(_EXIT_GRACE):
                    await self._stderr_read.wait()
                nursery.cancel_scope.cancel()
        finally:
            with trio.CancelScope(shield=True):
                if far_end.status is None:
                    far_end.signal(signal.SIGKILL)
                    await far_end.wait()
            far_end.close()
        self._gone(far_end)

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

    async def _write(self, far_end: FarEnd, connection: Connection, exited: trio.Event) -> None:
        """A program that reads nothing any more, while we have more to say, has failed."""
        await write_backlog(connection, self.host.flusher)
        if self._stopping:
            return
        with trio.move_on_after(_EXIT_GRACE):
            await exited.wait()
        if not exited.is_set() and not self._stopping:
            self._cause = self._cause or "closed its stdin"
            far_end.signal(signal.SIGKILL)

    async def _wait_exit(self, far_end: FarEnd, exited: trio.Event) -> None:
        """After the end of its output a program is given a moment, unless we asked it to end."""
        if self._stopping:
            self._finished.set()
            await exited.wait()
            return
        with trio.move_on_after(_EXIT_GRACE):
            await exited.wait()
        if not exited.is_set():
            self._cause = self._cause or "closed its stdout"
            far_end.signal(signal.SIGKILL)
            await exited.wait()

    async def _watch_exit(self, far_end: FarEnd, exited: trio.Event) -> None:
        status = await far_end.wait()
        self._log.debug("component ended", status=status)
        exited.set()

    async def _drain_stderr(self, far_end: FarEnd) -> None:
        while chunk := await far_end.read_stderr():
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

    def _gone(self, far_end: FarEnd) -> None:
        """It is over: say so to everyone who waits for it."""
        if self._was_initialized or self.initialization.done:
            self._was_initialized = True
            error = ComponentExited(
                self.name,
                self._how_it_ended(far_end),
                stderr_tail=self._stderr.last_lines(),
                place=self._place,
            )
            self._after_failure(error)
            return
        error_at_start = self._start_error(f"it {self._how_it_ended(far_end)}")
        may_retry = far_end.reached and not self._stopping and not self._failed
        if may_retry and self.initialization.closed():
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
        from conductor.components.watch import Stalled, TimedOut

        match due:
            case TimedOut(call, seconds, session):
                reason = f"{self.name} did not answer {call.method} within {seconds:g} s"
                self._log.warning("request timed out", method=call.method, seconds=seconds)
                self.wire.give_up(call, f"{reason} (request_timeout)")
                if session is not None:  # few agents end a turn whose request was cancelled
                    self._cancel_turn(session)
            case Stalled(session, calls, rung, seconds):
                self._log.warning("turn is silent", session=session, seconds=seconds, rung=rung)
                self._climb(session, calls, rung, seconds)

    def _climb(self, session: str, calls: Sequence[Call], rung: Rung, seconds: float) -> None:
        match rung:
            case "report":
                text = f"{self.name} has been silent for {seconds:.3g} s"
                self.host.tell(session, text)
            case "cancel":
                self._cancel_turn(session)
            case "cancel_request":
                for call in calls:
                    self.wire.plain.cancel(call)
            case "restart":
                self._cause = f"was silent for {seconds:.3g} s (stall_timeout)"
                self._signal(signal.SIGKILL)

    def _cancel_turn(self, session: str) -> None:
        params = msgspec.json.encode({"sessionId": session})
        self.wire.plain.notify("session/cancel", params)

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
        far_end = self._far_end
        how = self._cause or (far_end.status if far_end is not None else None)
        if how is None and far_end is not None and not far_end.reached:
            seconds = f"{self.spec.start_timeout:g} s (start_timeout)"
            how = f"could not be reached at {far_end.where} within {seconds}"
        self._fail(self._start_error(f"it {how}" if how else reason))

    def _fail(self, error: StartError | ComponentExited) -> None:
        if not self._failed:
            self._failed = True
            self.host.component_failed(self, error)

    def _how_it_ended(self, far_end: FarEnd) -> str:
        return self._cause or far_end.status or "ended"

    def _start_error(self, reason: str) -> StartError:
        far_end = self._far_end
        status = far_end.status if far_end is not None and far_end.reached else None
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
        paths: list[ValuePath] = [("run", 0), ("connect",), ("unix",)]
        places = (self.spec.places.get(path) for path in paths)
        place = next(filter(None, places), self.spec.place)
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
        if self._far_end is not None:
            self._far_end.signal(number)
