"""A component behind a link: started, connected, watched, started again, ended with all that it
started.

It is a program, or it is on another machine: what is at the endpoint of the link (`peer`) makes
no difference here. From its start to its end, `component_run` has it; here is what comes after. One
that fails after it was initialized is dealt with as its restart policy says (`restart_policy`).
While it is started again, what is sent to it waits; what it owed is answered at once, with an error
that names it, because nobody knows how far it got.
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

from conductor.acp import PROMPT, SESSION_CANCEL
from conductor.chainfile.model import ComponentSpec, ValuePath
from conductor.errors import ComponentExited, ConnectionClosed, RequestError, StartError
from conductor.jsonrpc.connection import Connection
from conductor.jsonrpc.in_flight import InFlightRequest
from conductor.log import Logger, get_logger
from conductor.redaction import redact
from conductor.routing.component import Component, ComponentHost
from conductor.routing.failure_errors import FailureErrors, prompt_advice
from conductor.routing.handshake import Handshake
from conductor.routing.link import Link
from conductor.routing.port import Port
from conductor.supervision.cancel_arbiter import cancelled_answer, idle_update, report_ended_turn
from conductor.supervision.cancel_monitor import CancelMonitor
from conductor.supervision.cancel_timeouts import CancelOverdue, RequestOverdue, TurnOverdue
from conductor.supervision.component_run import ComponentRun
from conductor.supervision.endpoint import Launcher
from conductor.supervision.initialization import Initialization
from conductor.supervision.replay import (
    ReplayFailed,
    replay_initialize,
    replay_to_agent,
    replay_to_proxy,
    session_resume_methods,
)
from conductor.supervision.restart_policy import Bypass, Decision, EndChain, Restart, RestartPolicy
from conductor.supervision.stderr import TokenBucket
from conductor.transport.spawn import SpawnError

if TYPE_CHECKING:
    from conductor.supervision.stall_detector import Overdue, StallAction
    from conductor.supervision.stall_monitor import StallMonitor

__all__ = ["SupervisedComponent"]


@attrs.define(eq=False, repr=False)
class SupervisedComponent(Component):
    """A program that speaks the protocol on stdin and stdout, or what does so elsewhere."""

    spec: ComponentSpec
    role: Literal["proxy", "agent"]
    launch: Launcher
    patch_result: Callable[[bytes], bytes] | None = None
    link: Link = attrs.field(init=False)
    initialization: Initialization = attrs.field(init=False)
    restart_policy: RestartPolicy = attrs.field(init=False)
    _stall_monitor: StallMonitor | None = attrs.field(default=None, init=False)
    _cancel_monitor: CancelMonitor = attrs.field(init=False)
    _log: Logger = attrs.field(init=False)
    host: ComponentHost = attrs.field(init=False)
    _current_run: ComponentRun | None = attrs.field(default=None, init=False)
    """The present one, or the last."""
    _next_start: float | None = attrs.field(default=None, init=False)
    """When the next process is to be started, if one is."""
    _was_initialized: bool = attrs.field(default=False, init=False)
    _failed: bool = attrs.field(default=False, init=False)
    _report_rate: TokenBucket = attrs.field(factory=TokenBucket, init=False)
    _drained: trio.Event = attrs.field(factory=trio.Event, init=False)
    _stop: trio.Event = attrs.field(factory=trio.Event, init=False)
    _ended: trio.Event = attrs.field(factory=trio.Event, init=False)

    def __attrs_post_init__(self) -> None:
        self._log = get_logger(component=self.spec.name)
        self.link = Link(self.spec.name, self.role, self._report)
        self.restart_policy = RestartPolicy.of(self.spec, self.role)
        self.initialization = self._new_initialization(self.spec.dialect)
        if self.spec.request_timeout or self.spec.stall_timeout is not None:
            from conductor.supervision.stall_detector import StallDetector
            from conductor.supervision.stall_monitor import StallMonitor

            detector = StallDetector(
                self.spec.request_timeout, self.spec.stall_timeout, self.spec.on_stall
            )
            self._stall_monitor = self.link.observer = StallMonitor(detector, self._on_overdue)
        self._cancel_monitor = self.link.turn_observer = CancelMonitor(
            self.spec.cancel_timeout, self._speaks_version_2, self._on_cancel_overdue
        )

    @property
    def name(self) -> str:
        return self.spec.name

    @property
    def client_port(self) -> Port:
        return self.link.plain

    @property
    def agent_port(self) -> Port | None:
        return self.link.enveloped

    @property
    def stop_timeout(self) -> float:
        return self.spec.stop_timeout

    @property
    def cancel_timeout(self) -> float:
        return self.spec.cancel_timeout

    @property
    def watches_turns(self) -> bool:
        return self.link.queue is None

    def set_cancel_timeout(self, seconds: float) -> None:
        self._cancel_monitor.timeouts.timeout = seconds

    def holds_up_turn(self, session: str) -> bool:
        if self.link.queue is not None:
            return self.link.queue.has_prompt(session)
        return self._cancel_monitor.timeouts.holds_up_turn(session)

    def holds_up_request(self, method: str) -> bool:
        return self._cancel_monitor.timeouts.holds_up_request(method)

    def end_turn(self, session: str, *, version_2: bool) -> bool:
        """Only called while it is started again: what waits for it is not sent to it any more."""
        queue = [] if self.link.queue is None else self.link.queue.take_prompts(session)
        for call in queue:
            answer = cancelled_answer(call.method, self.name, version_2=version_2)
            self.link.plain.neighbour.respond(call, *answer)
        return bool(queue)

    def prepare(self, host: ComponentHost) -> None:
        self.host = host
        self.link.session_log.limits = host.limits
        self._spawn()

    async def run(self) -> None:
        try:
            await self._run_once()
            while self._next_start is not None and not self._stopping:
                with trio.move_on_at(self._next_start):
                    await self._stop.wait()
                    break
                self._next_start = None
                await self._run_again()
        finally:
            self.link.release_queue()  # nobody is left to wait for
            self.host.flusher.made_room()
            self._drained.set()
            self._ended.set()

    def close_input(self) -> None:
        self._stop.set()
        if self.link.connection is not None:
            self.link.connection.close_writing()

    async def wait_drained(self) -> None:
        await self._drained.wait()

    async def wait_ended(self) -> None:
        await self._ended.wait()

    def terminate(self) -> None:
        self._stop.set()
        self._signal(signal.SIGTERM)

    def kill(self) -> None:
        self._stop.set()
        self._signal(signal.SIGKILL)

    def backlog(self) -> int:
        return self.link.backlog()

    def told_why(self, end_cause: str) -> None:
        """It says itself how it fails, and is about to end."""
        if self._current_run is not None and self._current_run.end_cause is None:
            self._current_run.end_cause = end_cause

    # -- one process ---------------------------------------------------------------------------

    def _new_initialization(self, dialect: Literal["proxy", "_proxy"] | None) -> Initialization:
        self.link.initializer = initialization = Initialization(
            self.link,
            Handshake(self.role, dialect),
            self.spec.start_timeout,
            failed=self._fail_start,
            restart=self._start_in_other_dialect,
            patch_result=self.patch_result,
        )
        return initialization

    def _spawn(self) -> None:
        self._current_run = None
        limits = self.host.limits
        try:
            endpoint = self.launch(limits.max_message_bytes)
        except SpawnError as exc:
            raise self._start_error(str(exc)) from exc
        connection = Connection(
            endpoint.transport,
            self.link,
            self.host.flusher,
            limits=limits,
        )
        self._current_run = ComponentRun(
            endpoint, connection, self.host.flusher, self._stop, self._drained, self._log
        )
        self.link.connection = connection
        self.link.on_success = self._current_run.on_success
        if self.spec.stdin_head:
            connection.write((self.spec.stdin_head,))
        self.initialization.connected()

    async def _run_once(self, *, again: bool = False) -> None:
        """From the start of a process to its end."""
        component_run = self._current_run
        assert component_run is not None
        background: list[Callable[[], Awaitable[None]]] = [
            self.initialization.enforce_timeout,
            self._cancel_monitor.run,
        ]
        if self._stall_monitor is not None:
            background.append(self._stall_monitor.run)
        if again:
            background.append(partial(self._replay, component_run))
        await component_run.run(self.host.read_gate(self), background)
        self._on_ended(component_run)

    # -- the next process --------------------------------------------------------------------------

    async def _run_again(self) -> None:
        if self._was_initialized:
            self.initialization = self._new_initialization(self.link_dialect)
        try:
            self._spawn()
        except StartError as exc:
            if self._was_initialized:
                self._after_failure(exc)
            else:
                self._fail(exc)
            return
        await self._run_once(again=self._was_initialized)

    @property
    def link_dialect(self) -> Literal["proxy", "_proxy"] | None:
        return self.link.dialect if self.role == "proxy" else None

    async def _replay(self, component_run: ComponentRun) -> None:
        """Bring the new process to where its predecessor was, then let through what waited."""
        link, session_log, timeout = self.link, self.link.session_log, self.spec.start_timeout
        try:
            result = await replay_initialize(link, self.initialization, session_log)
            if self.role == "proxy":
                lost_sessions = await replay_to_proxy(link, session_log, timeout, self._log)
            else:
                lost_sessions = await replay_to_agent(link, session_log, result, timeout, self._log)
        except (RequestError, ConnectionClosed) as exc:
            component_run.end(f"could not be initialized again: {exc}")
            return
        except ReplayFailed as exc:
            component_run.end(str(exc))
            return
        self._log.warning("component restarted", lost_sessions=lost_sessions)
        if self.role == "agent":
            link.lost_sessions.update(lost_sessions)
            self._end_turns()
        self.host.on_restarted(self, lost_sessions)
        link.release_queue()
        self.host.flusher.made_room()

    def _end_turns(self) -> None:
        """In version 2 a turn is not a request that could be answered: say that there is none."""
        if self._speaks_version_2():
            for session in (*self.link.session_log.sessions, *self.link.lost_sessions):
                self._report_idle(session)

    def _report_idle(self, session: str, reason: str | None = None) -> None:
        """Version 2: say in the agent's place that no turn runs in a session."""
        params = idle_update(session, reason)
        self._cancel_monitor.on_notification("session/update", params)
        self.link.plain.neighbour.notify("session/update", params)

    def _on_ended(self, component_run: ComponentRun) -> None:
        """It is over: say so to everyone who waits for it."""
        if self._was_initialized or self.initialization.done:
            self._was_initialized = True
            error = ComponentExited(
                self.name,
                component_run.end_reason,
                stderr_tail=component_run.stderr.last_lines(),
                location=self._location,
            )
            self._after_failure(error)
            return
        error_at_start = self._start_error(f"it {component_run.end_reason}")
        may_retry = component_run.endpoint.reached and not self._stopping and not self._failed
        if may_retry and self.initialization.closed():
            self._next_start = trio.current_time()
            self.link.disconnect(FailureErrors.of(error_at_start))
            return
        self.link.disconnect(FailureErrors.of(error_at_start))
        if not self._stopping:
            self._fail(error_at_start)

    def _after_failure(self, error: ComponentExited | StartError) -> None:
        """It worked once, and failed: do as the restart policy says."""
        if self._stopping:
            self.link.disconnect(FailureErrors.of(error))
            self.host.flusher.made_room()
            return
        decision: Decision = self.restart_policy.after_failure(trio.current_time(), random.random())
        error.next, error.is_last = str(decision), isinstance(decision, EndChain)
        if self.role == "agent" and isinstance(decision, Restart):
            answer = self.initialization.result
            error.loses_sessions = answer is not None and not session_resume_methods(answer)
        failure = {"error": str(error), "next": str(decision)}
        self._log.error("component failed", **{**error.private_details(), **failure})
        if self.role == "agent":
            for session in self._cancel_monitor.timeouts.running:
                # In version 2 there is no open request that could be answered with it.
                advice = prompt_advice(error, delivered=True)
                self.host.send_notice(
                    session, redact(error.public_details()[0]), redact(advice), severity="error"
                )
        match decision:
            case Restart(delay):
                self._next_start = trio.current_time() + delay
                if self.link.queue is None:
                    self.link.start_queueing()
                self.link.disconnect(FailureErrors.of(error))
            case Bypass():
                self.link.disconnect(FailureErrors.of(error))
                self.host.bypass(self, error)
                self.link.release_queue_past()
            case EndChain():
                self.link.disconnect(FailureErrors.of(error))
                self.link.release_queue()
                self._fail(error)
        self.host.flusher.made_room()  # what waited for it is gone

    def _on_overdue(self, overdue: Overdue) -> None:
        """A request takes too long, or a turn is silent: say so, and escalate."""
        from conductor.supervision.stall_detector import Stalled, TimedOut

        match overdue:
            case TimedOut(call, seconds, session):
                reason = f"{self.name} did not answer {call.method} within {seconds:g} s"
                reason += " (request_timeout)"
                if session is not None:
                    reason += "; the turn was cancelled, and part of it may have been done"
                self._log.warning("request timed out", method=call.method, seconds=seconds)
                self.link.fail_request(call, reason)
                if session is not None:  # few agents end a turn whose request was cancelled
                    self._cancel_turn(session)
            case Stalled(session, calls, action, seconds):
                self._log.warning(
                    "prompt turn stalled", session=session, seconds=seconds, action=action
                )
                self._escalate(session, calls, action, seconds)

    def _escalate(
        self, session: str, calls: Sequence[InFlightRequest], action: StallAction, seconds: float
    ) -> None:
        match action:
            case "report":
                self.host.send_notice(session, f"{self.name} has been silent for {seconds:.3g} s")
            case "cancel":
                self._cancel_turn(session)
            case "cancel_request":
                for call in calls:
                    self.link.plain.cancel(call)
            case "restart":
                self._kill(f"was silent for {seconds:.3g} s (stall_timeout)")

    def _on_cancel_overdue(self, overdue: CancelOverdue) -> None:
        """What was cancelled goes on: end it in the place of the component that holds it up."""
        if isinstance(overdue, TurnOverdue):
            if self._stall_monitor is not None and self._stall_monitor.detector.is_escalating(
                overdue.session
            ):
                return  # `on_stall` decides about this turn
            stuck, is_ours = self.host.stuck(self, ("turn", overdue.session))
            if stuck is self:
                self._end_cancelled_turn(overdue)
            elif stuck is not None and is_ours:
                self._end_turn_of_plugin(stuck, overdue)
        else:
            stuck, is_ours = self.host.stuck(self, ("request", overdue.call.method))
            if stuck is self:
                self._end_withdrawn_request(overdue)
            elif stuck is not None and is_ours:
                self._answer_what_it_asked(
                    stuck, lambda call: call.cancelled and call.method == overdue.call.method
                )

    def _end_withdrawn_request(self, overdue: RequestOverdue) -> None:
        if overdue.session is not None and not self._speaks_version_2():
            # Few agents know how to cancel a prompt as a request.
            seconds = self._cancel_monitor.timeouts.timeout
            self._log.warning(
                "prompt not answered after $/cancel_request: sending session/cancel",
                seconds=seconds,
            )
            self._cancel_turn(overdue.session)
        else:
            self._log.warning(
                "request not answered after $/cancel_request: answered in its place",
                method=overdue.call.method,
            )
            self._answer_cancelled(overdue.call)

    def _end_cancelled_turn(self, overdue: TurnOverdue) -> None:
        seconds, action = self._cancel_monitor.timeouts.timeout, self.spec.on_cancel_timeout
        self._log.warning(
            "cancelled turn goes on: ended in the component's place",
            session=overdue.session,
            seconds=seconds,
            restart=action == "restart",
        )
        problem = report_ended_turn(self.host, overdue.session, self.name, seconds, action)
        for call in overdue.prompts:
            self._answer_cancelled(call)
        if overdue.running:
            self._report_idle(overdue.session, "cancelled")
        if overdue.running or any(self._prompts_asked(overdue.session)):
            self._cancel_turn_beyond(overdue.session)
        if action == "restart":
            self._kill(f"{problem} (cancel_timeout)")

    def _end_turn_of_plugin(self, plugin: Component, overdue: TurnOverdue) -> None:
        """The same for a plugin behind us: what we asked, and it holds up, is answered."""
        version_2 = self._speaks_version_2()
        report_ended_turn(
            self.host, overdue.session, plugin.name, self._cancel_monitor.timeouts.timeout
        )
        if not plugin.end_turn(overdue.session, version_2=version_2):
            self._answer_what_it_asked(plugin, lambda call: call.session == overdue.session)
        if overdue.running:
            plugin.client_port.neighbour.notify(
                "session/update", idle_update(overdue.session, "cancelled")
            )

    def _answer_what_it_asked(
        self, stuck: Component, chosen: Callable[[InFlightRequest], bool]
    ) -> None:
        """Answer requests of this component in the place of one that is behind it."""
        connection = self.link.connection
        for call in () if connection is None else filter(chosen, connection.unanswered()):
            answer = cancelled_answer(call.method, stuck.name, version_2=self._speaks_version_2())
            call.source.respond(call, *answer)

    def _answer_cancelled(self, call: InFlightRequest) -> None:
        answer = cancelled_answer(call.method, self.name, version_2=self._speaks_version_2())
        self.link.answer_in_place(call, *answer)

    def _prompts_asked(self, session: str) -> Iterator[InFlightRequest]:
        """Prompts of this proxy that its successor has not answered."""
        connection = self.link.connection
        for call in () if connection is None else connection.unanswered():
            if call.method == PROMPT and call.session == session:
                yield call

    def _cancel_turn_beyond(self, session: str) -> None:
        """A proxy does not pass the cancellation on: tell its successor in its place."""
        if self.link.enveloped is not None:
            params = msgspec.json.encode({"sessionId": session})
            self.link.enveloped.neighbour.notify(SESSION_CANCEL, params)

    def _speaks_version_2(self) -> bool:
        return (self.initialization.result or {}).get("protocolVersion") == 2

    def _cancel_turn(self, session: str) -> None:
        params = msgspec.json.encode({"sessionId": session})
        self.link.plain.notify("session/cancel", params)

    # -- what goes wrong -------------------------------------------------------------------------

    def _start_in_other_dialect(self) -> None:
        """The handshake wants a fresh process."""
        self._log.debug(
            "component restarting in the other dialect",
            dialect=self.initialization.handshake.dialect,
        )
        self._signal(signal.SIGKILL)

    def _fail_start(self, reason: str) -> None:
        if self._was_initialized:
            self._kill(reason)
            return
        component_run = self._current_run
        problem = (
            None
            if component_run is None
            else component_run.end_cause or component_run.endpoint.status
        )
        if problem is None and component_run is not None and not component_run.endpoint.reached:
            seconds = f"{self.spec.start_timeout:g} s (start_timeout)"
            problem = f"could not be reached at {component_run.endpoint.location} within {seconds}"
        self._fail(self._start_error(f"it {problem}" if problem else reason))

    def _fail(self, error: StartError | ComponentExited) -> None:
        if not self._failed:
            self._failed = True
            self.host.component_failed(self, error)

    def _start_error(self, reason: str) -> StartError:
        component_run = self._current_run
        status: str | None = None
        stderr_tail: tuple[str, ...] = ()
        if component_run is not None:
            stderr_tail = component_run.stderr.last_lines()
            if component_run.end_cause is None and component_run.endpoint.reached:
                status = component_run.endpoint.status
        return StartError(
            self.name,
            reason,
            command=self._shown_command(),
            status=status,
            stderr_tail=stderr_tail,
            location=self._location,
        )

    def _shown_command(self) -> list[str]:
        """The command as the chain file has it: what a `${VAR}` in it stands for may be secret."""
        written = self.spec.written
        return [
            written[path].text if (path := ("run", index)) in written else word
            for index, word in enumerate(self.spec.run or ())
        ]

    @property
    def _location(self) -> str | None:
        paths: list[ValuePath] = [("run", 0), ("use",), ("connect",), ("unix",)]
        locations = (self.spec.locations.get(path) for path in paths)
        location = next(filter(None, locations), self.spec.location)
        return None if location is None else str(location)

    def _report(self, event: str, detail: str) -> None:
        if (more := self._report_rate.report(trio.current_time())) is not None:
            self._log.warning(event, detail=detail, **more)

    @property
    def _stopping(self) -> bool:
        return self._stop.is_set()

    def _kill(self, end_cause: str) -> None:
        if self._current_run is not None:
            self._current_run.end_cause = end_cause
            self._signal(signal.SIGKILL)

    def _signal(self, number: signal.Signals) -> None:
        if self._current_run is not None:
            self._current_run.endpoint.signal(number)
