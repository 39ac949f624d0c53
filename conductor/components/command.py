"""A component behind a wire: started, connected, watched, started again, ended with all that it
started.

It is a program, or it is on another machine: what is at the far end of the wire (`far_end`) makes
no difference here. From its start to its end, `life` has it; here is what comes after. One that
fails after it was initialized is dealt with as its contract says (`contract`). While it is started
again, what is sent to it waits; what it owed is answered at once, with an error that names it,
because nobody knows how far it got.
"""

from __future__ import annotations

import random
import signal
from collections.abc import Awaitable, Callable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Literal

import attrs
import msgspec
import trio

from conductor.chainfile.model import Component as Spec
from conductor.chainfile.model import ValuePath
from conductor.components.base import Component, Host
from conductor.components.cancel_monitor import CancelMonitor
from conductor.components.cancellation import CancelDue, TurnOverdue, WithdrawnOverdue
from conductor.components.contract import Bypass, Contract, Decision, EndChain, Restart
from conductor.components.far_end import Opener, SpawnError, opener
from conductor.components.initialization import Initialization
from conductor.components.life import Life
from conductor.components.restoring import (
    NotRestored,
    initialize_again,
    restore_agent,
    restore_proxy,
    ways_back,
)
from conductor.components.stderr import Allowance
from conductor.components.stuck import cancelled_answer, idle_update, report_turn
from conductor.connection.calls import Call
from conductor.connection.connection import Connection
from conductor.errors import ComponentExited, ConnectionClosed, RequestError, StartError
from conductor.log import Logger, get_logger
from conductor.masking import masked
from conductor.routing.failure import Failure, prompt_advice
from conductor.routing.handshake import Handshake
from conductor.routing.sides import Side
from conductor.routing.wire import Wire
from conductor.routing.wire_side import PROMPT, SESSION_CANCEL

if TYPE_CHECKING:
    from conductor.components.watch import Due, Rung
    from conductor.components.watching import Watching

__all__ = ["CommandComponent"]


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
    _cancels: CancelMonitor = attrs.field(init=False)
    _log: Logger = attrs.field(init=False)
    host: Host = attrs.field(init=False)
    _open: Opener = attrs.field(init=False)
    _life: Life | None = attrs.field(default=None, init=False)
    """The present one, or the last."""
    _next_start: float | None = attrs.field(default=None, init=False)
    """When the next process is to be started, if one is."""
    _was_initialized: bool = attrs.field(default=False, init=False)
    _failed: bool = attrs.field(default=False, init=False)
    _reports: Allowance = attrs.field(factory=Allowance, init=False)
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
            self._watching = self.wire.observer = Watching(watch, self._on_due)
        self._cancels = self.wire.turns = CancelMonitor(
            self.spec.cancel_timeout, self._speaks_version_2, self._on_cancel_due
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

    @property
    def stop_timeout(self) -> float:
        return self.spec.stop_timeout

    @property
    def cancel_timeout(self) -> float:
        return self.spec.cancel_timeout

    @property
    def watches_turns(self) -> bool:
        return self.wire.held is None

    def set_cancel_timeout(self, seconds: float) -> None:
        self._cancels.cancellations.timeout = seconds

    def holds_up_turn(self, session: str) -> bool:
        if self.wire.held is not None:
            return self.wire.held.has_prompt(session)
        return self._cancels.cancellations.holds_up_turn(session)

    def holds_up_request(self, method: str) -> bool:
        return self._cancels.cancellations.holds_up_request(method)

    def end_turn(self, session: str, *, version_2: bool) -> bool:
        """Only called while it is started again: what waits for it is not sent to it any more."""
        held = [] if self.wire.held is None else self.wire.held.take_prompts(session)
        for call in held:
            answer = cancelled_answer(call.method, self.name, version_2=version_2)
            self.wire.plain.neighbour.respond(call, *answer)
        return bool(held)

    def prepare(self, host: Host) -> None:
        self.host = host
        self.wire.recollection.limits = host.limits
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
        self._stop.set()
        if self.wire.connection is not None:
            self.wire.connection.close_writing()

    async def wait_finished(self) -> None:
        await self._finished.wait()

    async def wait_ended(self) -> None:
        await self._ended.wait()

    def terminate(self) -> None:
        self._stop.set()
        self._signal(signal.SIGTERM)

    def kill(self) -> None:
        self._stop.set()
        self._signal(signal.SIGKILL)

    def backlog(self) -> int:
        return self.wire.backlog()

    def told_why(self, cause: str) -> None:
        """It says itself how it fails, and is about to end."""
        if self._life is not None and self._life.cause is None:
            self._life.cause = cause

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
        self._life = None
        limits = self.host.limits
        try:
            far_end = self._open(limits.max_message_bytes)
        except SpawnError as exc:
            raise self._start_error(str(exc)) from exc
        connection = Connection(
            far_end.transport,
            self.wire,
            self.host.flusher,
            limits=limits,
        )
        self._life = Life(
            far_end, connection, self.host.flusher, self._stop, self._finished, self._log
        )
        self.wire.connection = connection
        self.wire.succeeded = self._life.succeeded
        if self.spec.stdin_head:
            connection.write((self.spec.stdin_head,))
        self.initialization.connected()

    async def _live(self, *, again: bool = False) -> None:
        """From the start of a process to its end."""
        life = self._life
        assert life is not None
        beside: list[Callable[[], Awaitable[None]]] = [self.initialization.watch, self._cancels.run]
        if self._watching is not None:
            beside.append(self._watching.run)
        if again:
            beside.append(partial(self._restore, life))
        await life.run(self.host.gate(self), beside)
        self._gone(life)

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

    async def _restore(self, life: Life) -> None:
        """Bring the new process to where its predecessor was, then let through what waited."""
        wire, recollection, timeout = self.wire, self.wire.recollection, self.spec.start_timeout
        try:
            result = await initialize_again(wire, self.initialization, recollection)
            if self.role == "proxy":
                lost = await restore_proxy(wire, recollection, timeout, self._log)
            else:
                lost = await restore_agent(wire, recollection, result, timeout, self._log)
        except (RequestError, ConnectionClosed) as exc:
            life.end(f"could not be initialized again: {exc}")
            return
        except NotRestored as exc:
            life.end(str(exc))
            return
        self._log.warning("component was started again", lost_sessions=lost)
        if self.role == "agent":
            wire.lost.update(lost)
            self._end_turns()
        self.host.restarted(self, lost)
        wire.release()
        self.host.flusher.made_room()

    def _end_turns(self) -> None:
        """In version 2 a turn is not a request that could be answered: say that there is none."""
        if self._speaks_version_2():
            for session in (*self.wire.recollection.sessions, *self.wire.lost):
                self._report_idle(session)

    def _report_idle(self, session: str, reason: str | None = None) -> None:
        """Version 2: say in the agent's place that no turn runs in a session."""
        params = idle_update(session, reason)
        self._cancels.on_notification("session/update", params)
        self.wire.plain.neighbour.notify("session/update", params)

    def _gone(self, life: Life) -> None:
        """It is over: say so to everyone who waits for it."""
        if self._was_initialized or self.initialization.done:
            self._was_initialized = True
            error = ComponentExited(
                self.name,
                life.how_it_ended,
                stderr_tail=life.stderr.last_lines(),
                place=self._place,
            )
            self._after_failure(error)
            return
        error_at_start = self._start_error(f"it {life.how_it_ended}")
        may_retry = life.far_end.reached and not self._stopping and not self._failed
        if may_retry and self.initialization.closed():
            self._next_start = trio.current_time()
            self.wire.disconnect(Failure.of(error_at_start))
            return
        self.wire.disconnect(Failure.of(error_at_start))
        if not self._stopping:
            self._fail(error_at_start)

    def _after_failure(self, error: ComponentExited | StartError) -> None:
        """It worked once, and failed: do as the contract says."""
        if self._stopping:
            self.wire.disconnect(Failure.of(error))
            self.host.flusher.made_room()
            return
        decision: Decision = self.contract.after_failure(trio.current_time(), random.random())
        error.next, error.is_last = str(decision), isinstance(decision, EndChain)
        if self.role == "agent" and isinstance(decision, Restart):
            answer = self.initialization.result
            error.loses_sessions = answer is not None and not ways_back(answer)
        told = {"error": str(error), "next": str(decision)}
        self._log.error("component failed", **{**error.untold(), **told})
        if self.role == "agent":
            for session in self._cancels.cancellations.running:
                # In version 2 there is no open request that could be answered with it.
                advice = prompt_advice(error, delivered=True)
                self.host.tell(session, masked(error.told()[0]), masked(advice), severity="error")
        match decision:
            case Restart(delay):
                self._next_start = trio.current_time() + delay
                if self.wire.held is None:
                    self.wire.start_holding()
                self.wire.disconnect(Failure.of(error))
            case Bypass():
                self.wire.disconnect(Failure.of(error))
                self.host.bypass(self, error)
                self.wire.pass_by()
            case EndChain():
                self.wire.disconnect(Failure.of(error))
                self.wire.release()
                self._fail(error)
        self.host.flusher.made_room()  # what waited for it is gone

    def _on_due(self, due: Due) -> None:
        """A request takes too long, or a turn is silent: say so, and climb the ladder."""
        from conductor.components.watch import Stalled, TimedOut

        match due:
            case TimedOut(call, seconds, session):
                reason = f"{self.name} did not answer {call.method} within {seconds:g} s"
                reason += " (request_timeout)"
                if session is not None:
                    reason += "; the turn was cancelled, and part of it may have been done"
                self._log.warning("request timed out", method=call.method, seconds=seconds)
                self.wire.give_up(call, reason)
                if session is not None:  # few agents end a turn whose request was cancelled
                    self._cancel_turn(session)
            case Stalled(session, calls, rung, seconds):
                self._log.warning("turn is silent", session=session, seconds=seconds, rung=rung)
                self._climb(session, calls, rung, seconds)

    def _climb(self, session: str, calls: Sequence[Call], rung: Rung, seconds: float) -> None:
        match rung:
            case "report":
                self.host.tell(session, f"{self.name} has been silent for {seconds:.3g} s")
            case "cancel":
                self._cancel_turn(session)
            case "cancel_request":
                for call in calls:
                    self.wire.plain.cancel(call)
            case "restart":
                self._kill_because(f"was silent for {seconds:.3g} s (stall_timeout)")

    def _on_cancel_due(self, due: CancelDue) -> None:
        """What was cancelled goes on: end it in the place of the component that holds it up."""
        if isinstance(due, TurnOverdue):
            if self._watching is not None and self._watching.watch.is_climbing(due.session):
                return  # `on_stall` decides about this turn
            stuck, is_ours = self.host.stuck(self, ("turn", due.session))
            if stuck is self:
                self._end_cancelled_turn(due)
            elif stuck is not None and is_ours:
                self._end_turn_of_plugin(stuck, due)
        else:
            stuck, is_ours = self.host.stuck(self, ("request", due.call.method))
            if stuck is self:
                self._end_withdrawn_request(due)
            elif stuck is not None and is_ours:
                self._answer_what_it_asked(
                    stuck, lambda call: call.cancelled and call.method == due.call.method
                )

    def _end_withdrawn_request(self, due: WithdrawnOverdue) -> None:
        if due.session is not None and not self._speaks_version_2():
            # Few agents know how to cancel a prompt as a request.
            seconds = self._cancels.cancellations.timeout
            self._log.warning("withdrawn prompt goes on: sending session/cancel", seconds=seconds)
            self._cancel_turn(due.session)
        else:
            self._log.warning("withdrawn request was not answered", method=due.call.method)
            self._answer_cancelled(due.call)

    def _end_cancelled_turn(self, due: TurnOverdue) -> None:
        seconds, action = self._cancels.cancellations.timeout, self.spec.on_cancel_timeout
        self._log.warning(
            "cancelled turn goes on: ended in the component's place",
            session=due.session,
            seconds=seconds,
            restart=action == "restart",
        )
        how = report_turn(self.host, due.session, self.name, seconds, action)
        for call in due.prompts:
            self._answer_cancelled(call)
        if due.running:
            self._report_idle(due.session, "cancelled")
        if due.running or any(self._prompts_asked(due.session)):
            self._cancel_turn_beyond(due.session)
        if action == "restart":
            self._kill_because(f"{how} (cancel_timeout)")

    def _end_turn_of_plugin(self, plugin: Component, due: TurnOverdue) -> None:
        """The same for a plugin behind us: what we asked, and it holds up, is answered."""
        version_2 = self._speaks_version_2()
        report_turn(self.host, due.session, plugin.name, self._cancels.cancellations.timeout)
        if not plugin.end_turn(due.session, version_2=version_2):
            self._answer_what_it_asked(plugin, lambda call: call.session == due.session)
        if due.running:
            plugin.client_side.neighbour.notify(
                "session/update", idle_update(due.session, "cancelled")
            )

    def _answer_what_it_asked(self, stuck: Component, chosen: Callable[[Call], bool]) -> None:
        """Answer requests of this component in the place of one that is behind it."""
        connection = self.wire.connection
        for call in () if connection is None else filter(chosen, connection.unanswered()):
            answer = cancelled_answer(call.method, stuck.name, version_2=self._speaks_version_2())
            call.source.respond(call, *answer)

    def _answer_cancelled(self, call: Call) -> None:
        answer = cancelled_answer(call.method, self.name, version_2=self._speaks_version_2())
        self.wire.answer_for(call, *answer)

    def _prompts_asked(self, session: str) -> Iterator[Call]:
        """Prompts of this proxy that its successor has not answered."""
        connection = self.wire.connection
        for call in () if connection is None else connection.unanswered():
            if call.method == PROMPT and call.session == session:
                yield call

    def _cancel_turn_beyond(self, session: str) -> None:
        """A proxy does not pass the cancellation on: tell its successor in its place."""
        if self.wire.wrapped is not None:
            params = msgspec.json.encode({"sessionId": session})
            self.wire.wrapped.neighbour.notify(SESSION_CANCEL, params)

    def _speaks_version_2(self) -> bool:
        return (self.initialization.result or {}).get("protocolVersion") == 2

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
            self._kill_because(reason)
            return
        life = self._life
        how = None if life is None else life.cause or life.far_end.status
        if how is None and life is not None and not life.far_end.reached:
            seconds = f"{self.spec.start_timeout:g} s (start_timeout)"
            how = f"could not be reached at {life.far_end.where} within {seconds}"
        self._fail(self._start_error(f"it {how}" if how else reason))

    def _fail(self, error: StartError | ComponentExited) -> None:
        if not self._failed:
            self._failed = True
            self.host.component_failed(self, error)

    def _start_error(self, reason: str) -> StartError:
        life = self._life
        status: str | None = None
        stderr_tail: tuple[str, ...] = ()
        if life is not None:
            stderr_tail = life.stderr.last_lines()
            if life.cause is None and life.far_end.reached:
                status = life.far_end.status
        return StartError(
            self.name,
            reason,
            command=self._shown_command(),
            status=status,
            stderr_tail=stderr_tail,
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
        paths: list[ValuePath] = [("run", 0), ("use",), ("connect",), ("unix",)]
        places = (self.spec.places.get(path) for path in paths)
        place = next(filter(None, places), self.spec.place)
        return None if place is None else str(place)

    def _report(self, event: str, detail: str) -> None:
        if (more := self._reports.report(trio.current_time())) is not None:
            self._log.warning(event, detail=detail, **more)

    @property
    def _stopping(self) -> bool:
        return self._stop.is_set()

    def _kill_because(self, cause: str) -> None:
        if self._life is not None:
            self._life.cause = cause
            self._signal(signal.SIGKILL)

    def _signal(self, number: signal.Signals) -> None:
        if self._life is not None:
            self._life.far_end.signal(number)
