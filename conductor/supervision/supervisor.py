"""Supervisor of a component behind a link: starts, initializes, restarts and stops it.

The component is a process, or a connection to another machine;
`Endpoint` hides the difference. `component_run` serves one process from start to end,
`restart_policy` decides what follows a failure, `replay` restores the sessions, `turn_enforcement`
applies the timeouts of turns and requests. While a component restarts, messages to it wait in the
link's queue; requests that it had not answered are answered at once with an error that names it,
since it is unknown how far they were carried out.
"""

from __future__ import annotations

import enum
import random
import signal
from collections.abc import Awaitable, Callable
from functools import partial
from typing import TYPE_CHECKING, Literal

import msgspec
import trio

from conductor.chainfile.model import ComponentSpec
from conductor.errors import ComponentExited, StartError
from conductor.jsonrpc.connection import Connection
from conductor.log import get_logger
from conductor.routing.component import Blocker, Component, ComponentHost
from conductor.routing.envelope import Dialect
from conductor.routing.failure_errors import CHAIN_ENDED, FailureErrors
from conductor.routing.link import Link
from conductor.routing.port import Port
from conductor.routing.session_log import LostSessions
from conductor.routing.session_settings import SettingsLog
from conductor.routing.trace import TracedOwnRequests, Tracer
from conductor.supervision.component_run import (
    ComponentRun,
    Launcher,
    StderrFile,
    exit_error,
    handshake_error,
    is_remote,
    start_error,
)
from conductor.supervision.initialization import Initialization
from conductor.supervision.monitors import SlowSetupMonitor
from conductor.supervision.replay import Replay, ReplayFailed, session_resume_methods
from conductor.supervision.restart_policy import RestartPolicy
from conductor.supervision.turn_enforcement import TurnEnforcement
from conductor.transport.spawn import SpawnError

if TYPE_CHECKING:
    from conductor.supervision.handler_reports import HandlerReports

__all__ = ["LinkComponent", "SupervisedComponent"]


class _State(enum.IntEnum):
    """State of a component. From STOPPING on, only later ones follow."""

    STARTING = 1
    """The first handshake is not complete; it may need a second process for the other dialect."""
    RUNNING = 2
    """Initialized; messages pass."""
    BACKING_OFF = 3
    """Failed after it was initialized; the next process starts at `_start_at`. A process that
    cannot be started then, and a failed replay, are failures as while it was running."""
    REPLAYING = 4
    """A new process repeats the handshake and the session set-up; messages wait in the queue."""
    STOPPING = 5
    """The chain stops or bypasses it; no further process is started."""
    FAILED = 6
    """Failed for good: reported to the chain once, which stops it."""
    ENDED = 7
    """`run` has returned: the process has exited, and its resources are released."""


class LinkComponent(Component):
    """A component with one or two ports on a link. Subclasses set `link` and the events."""

    link: Link
    """The conductor's end."""

    def __init__(self) -> None:
        self.handler_reports: HandlerReports | None = None
        """Reports of a plugin behind the link."""
        self._drained = trio.Event()
        self._ended = trio.Event()

    @property
    def client_port(self) -> Port:
        return self.link.plain

    @property
    def agent_port(self) -> Port | None:
        return self.link.enveloped

    @property
    def has_handlers(self) -> bool:
        return self.handler_reports is not None

    def trace(self, tracer: Tracer) -> None:
        if self.handler_reports is not None:
            self.handler_reports.tracer = tracer
        self.trace_own_requests(tracer.trace_own_requests(self.name))
        tracer.trace(self.link.plain, self.name, "client")
        if self.link.enveloped is not None:
            tracer.trace(self.link.enveloped, self.name, "agent")

    def trace_own_requests(self, traced: TracedOwnRequests) -> None:
        """Show the requests of the conductor itself to the component; it may have none."""

    def fail_requests(self, failure: FailureErrors) -> None:
        self.link.fail_requests(failure)

    def backlog(self) -> int:
        return self.link.backlog()

    async def wait_drained(self) -> None:
        await self._drained.wait()

    async def wait_ended(self) -> None:
        await self._ended.wait()


class SupervisedComponent(LinkComponent):
    """A proxy or agent behind a link, kept running as its chain file entry says.

    `launch` opens the endpoint of each process or connection. `patch_result` may change the raw
    JSON of the component's `initialize` result before the predecessor gets it.
    """

    host: ComponentHost

    def __init__(
        self,
        spec: ComponentSpec,
        role: Literal["proxy", "agent"],
        launch: Launcher,
        patch_result: Callable[[bytes], bytes] | None = None,
    ) -> None:
        super().__init__()
        self.spec = spec
        self.role = role
        self.launch = launch
        self.patch_result = patch_result
        self.repeats_payloads = False
        """See `Connection`; set for several processes in one chain."""
        self.restarts: int = 0
        """Number of restarts that have succeeded."""
        self._current_run: ComponentRun | None = None
        """The present one, or the last; None if the last start failed."""
        self._last_failure = ""
        """The last line of stderr at the last failure."""
        self._spawned = 0.0
        """When the present process was started, or the connection begun."""
        self._state = _State.STARTING
        self._was_initialized = False
        """Whether it has been RUNNING: the restart policy decides on later failures."""
        self._start_at: float | None = None
        """Time of the next start, after a failure or for the other dialect."""
        self._stop = trio.Event()
        self._log = get_logger(component=spec.name)
        self.link: Link = Link(spec.name, role, self._report)
        self.restart_policy: RestartPolicy = RestartPolicy.of(spec, role)
        self.initialization: Initialization = self._new_initialization(spec.dialect)
        self._turns = TurnEnforcement(
            self,
            spec,
            self.link,
            self._log,
            self._speaks_version_2,
            self._kill,
            lambda: self.stopped,
        )
        self._replays = Replay(self.link, spec.start_timeout, self._log)
        if self.role == "agent":
            self._replays.settings = SettingsLog(self.link.session_log)
            self.link.plain.insert(self._replays.settings)
        self._slow_setups = SlowSetupMonitor(self._on_slow_setup)
        self._slow_setups.insert(self.link)

    @property
    def name(self) -> str:
        return self.spec.name

    @property
    def kind(self) -> Literal["plugin", "process", "remote"]:
        return "remote" if is_remote(self.spec) else "process"

    @property
    def place(self) -> str | None:
        return None if self.spec.location is None else str(self.spec.location)

    @property
    def state(self) -> str:
        """In words: starting, running, restarting, …"""
        return self._state.name.lower().replace("_", " ")

    @property
    def pid(self) -> int | None:
        """The process id; `None` without a process."""
        run = self._current_run
        return None if run is None else getattr(run.endpoint, "pid", None)

    @property
    def stopped(self) -> str | None:
        """Clause that says that a process of it is stopped, by a signal; `None` if none is."""
        run = self._current_run
        return None if run is None else getattr(run.endpoint, "stopped", None)

    @property
    def stop_timeout(self) -> float:
        return self.spec.stop_timeout

    @property
    def cancel_timeout(self) -> float:
        return self.spec.cancel_timeout

    @property
    def blocker(self) -> Blocker:
        return self._turns

    def trace_own_requests(self, traced: TracedOwnRequests) -> None:
        self._replays.traced = traced

    def prepare(self, host: ComponentHost) -> None:
        self.host = self._turns.host = host
        self._turns.hop.cancels = host.cancels
        self.link.session_log.limits = host.limits
        self._spawn()

    async def run(self) -> None:
        try:
            await self._run_process()
            while (start_at := self._start_at) is not None:
                with trio.move_on_at(start_at):
                    await self._stop.wait()
                if self._is_stopping:
                    break
                await self._start_next()
        finally:
            self._enter(_State.ENDED)
            self.link.release_queue()  # without a connection, they are answered with an error
            self.host.flusher.made_room()
            self._drained.set()
            self._ended.set()

    def fail_requests(self, failure: FailureErrors) -> None:
        self._turns.end_turns(failure)
        super().fail_requests(failure)

    def close_input(self) -> None:
        self._begin_stop()
        if self.link.connection is not None:
            self.link.connection.close_writing()
            self.link.refuse(CHAIN_ENDED, is_reading=True)
        if self._current_run is not None and not self._current_run.endpoint.reached:
            self._signal(signal.SIGTERM)  # a connection that is not open sees no end of its input

    def terminate(self) -> None:
        self._begin_stop()
        self._signal(signal.SIGTERM)

    def kill(self) -> None:
        self._begin_stop()
        self._signal(signal.SIGKILL)

    def _enter(self, state: _State, *, start_at: float | None = None) -> None:
        if not self._is_stopping or state > self._state:
            self._state = state
            self._was_initialized = self._was_initialized or state is _State.RUNNING
            self._start_at = start_at

    @property
    def _is_stopping(self) -> bool:
        """Whether no further process is started."""
        return self._state >= _State.STOPPING

    def _begin_stop(self) -> None:
        self._enter(_State.STOPPING)
        self._stop.set()

    def set_end_cause(self, end_cause: str) -> None:
        """Record the cause that the component itself reported before it ends."""
        if self._current_run is not None and self._current_run.end_cause is None:
            self._current_run.end_cause = end_cause

    # -- one process ---------------------------------------------------------------------------

    def _new_initialization(self, dialect: Dialect | None) -> Initialization:
        return Initialization(
            self.link,
            dialect,
            self.spec.start_timeout,
            on_failed=self._fail_start,
            restart_process=self._end_process_for_other_dialect,
            on_initialized=self._on_initialized,
            on_slow=self._on_slow_start,
            patch_result=self.patch_result,
        )

    def _on_slow_start(self) -> None:
        method = self.initialization.method
        stopped = {"stopped": self.stopped} if self.stopped else {}
        self._log.warning("component slow to start", waits_for=f"its answer to {method}", **stopped)

    def _on_slow_setup(self, method: str, session: str | None, servers: list[str]) -> None:
        """Name the component that a session set-up waits for, also in a session that is known."""
        fields = {"stopped": self.stopped, "mcp_servers": servers, "session": session}
        self._log.warning(
            "component slow to set up a session",
            waits_for=f"its answer to {method}",
            **{name: each for name, each in fields.items() if each},
        )
        if session is not None:
            detail = self.stopped
            if detail is None and servers:
                detail = f"it may be starting MCP servers: {', '.join(servers)}"
            title = f"waiting for {self.name} to answer {method}"
            self.host.send_notice(session, title, detail, severity="info")

    def _on_initialized(self) -> None:
        if self._current_run is not None:
            self._current_run.stderr.forget()
        self._log.lifecycle(
            "component initialized",
            version=(self.initialization.result or {}).get("protocolVersion"),
            **({} if self.link_dialect is None else {"dialect": self.link_dialect}),
            seconds=round(trio.current_time() - self._spawned, 3),
        )
        if self._state is _State.STARTING:
            self._enter(_State.RUNNING)

    def _spawn(self) -> None:
        self._current_run, self._spawned = None, trio.current_time()
        limits = self.host.limits
        try:
            endpoint = self.launch(limits.max_message_bytes)
        except SpawnError as exc:
            raise start_error(self.spec, None, str(exc)) from exc
        connection = Connection(
            endpoint.transport,
            self.link,
            self.host.flusher,
            limits=limits,
            repeats_payloads=self.repeats_payloads,
        )
        file = StderrFile(self.spec.stderr, self._log)
        self._current_run = ComponentRun(
            endpoint, connection, self.host.flusher, self._stop, self._drained, self._log, file
        )
        self.link.connect(connection)
        self._turns.hop.turns.lost()
        self._turns.hop.on_answered_prompt = self._current_run.stderr.forget
        if self.spec.stdin_head:
            connection.write((self.spec.stdin_head,))
        self.initialization.on_connected()

    async def _run_process(self) -> None:
        """Serve the process that was just started until its end."""
        component_run = self._current_run
        assert component_run is not None
        pid = {} if self.pid is None else {"pid": self.pid}
        command = self.spec.run[0] if self.spec.run else component_run.endpoint.location
        self._log.lifecycle("component started", **pid, command=command)
        background: list[Callable[[], Awaitable[None]]] = [
            self.initialization.enforce_timeout,
            self._slow_setups.run,
        ]
        if self._turns.stall_monitor is not None:
            background.append(self._turns.stall_monitor.run)
        if self._state is _State.REPLAYING:
            background.append(partial(self._replay, component_run))
        await component_run.run(self.host.read_gate(self), background)
        self._on_process_ended(component_run)

    # -- the next process --------------------------------------------------------------------------

    async def _start_next(self) -> None:
        """Start the process of a restart, or of the handshake in the other dialect."""
        if self._was_initialized:
            self.initialization.remove()
            self.initialization = self._new_initialization(self.link_dialect)
        try:
            self._spawn()
        except StartError as exc:
            if self._was_initialized:
                self._after_failure(exc)
            else:
                self._fail(exc)
            return
        self._enter(_State.REPLAYING if self._was_initialized else _State.STARTING)
        await self._run_process()

    @property
    def link_dialect(self) -> Dialect | None:
        return self.link.dialect if self.role == "proxy" else None

    async def _replay(self, component_run: ComponentRun) -> None:
        """Repeat handshake and session set-up to the new process, then release the queue."""
        link = self.link
        try:
            restart = await self._replays.run(self.initialization)
        except ReplayFailed as exc:
            component_run.end(str(exc))
            return
        self.restarts += 1
        self._log.warning("component restarted", lost_sessions=restart.lost_sessions)
        if self.role == "agent" and restart.lost_sessions:
            lost, needs_login = restart.lost_sessions, restart.has_lost_login
            stage = LostSessions(self.name, lost, link.session_log, needs_login=needs_login)
            link.plain.insert(stage)
        self._enter(_State.RUNNING)
        self.host.on_restarted(self, msgspec.structs.replace(restart, cause=self._last_failure))
        link.release_queue()
        self.host.flusher.made_room()

    def _on_process_ended(self, component_run: ComponentRun) -> None:
        if self._was_initialized or self.initialization.done:
            self._after_failure(exit_error(self.spec, component_run))
            return
        error_at_start = start_error(self.spec, component_run, f"it {component_run.end_reason}")
        may_retry = component_run.endpoint.reached and not self._is_stopping
        if may_retry and self.initialization.on_closed():
            self._enter(_State.STARTING, start_at=trio.current_time())
            self.link.disconnect(FailureErrors.of(error_at_start))
            return
        self.link.disconnect(FailureErrors.of(error_at_start))
        if not self._is_stopping:
            self._fail(error_at_start)

    def _after_failure(self, error: ComponentExited | StartError) -> None:
        """Apply the restart policy to a failure of a component that was initialized before."""
        if self._is_stopping:
            self.link.disconnect(CHAIN_ENDED)
            self.host.flusher.made_room()
            return
        self._last_failure = error.last_line if isinstance(error, ComponentExited) else ""
        decision = self.restart_policy.after_failure(trio.current_time(), random.random())
        error.next, error.is_last = decision.text, decision.action == "end_chain"
        if self.role == "agent" and decision.action == "restart":
            answer = self.initialization.result
            error.loses_sessions = answer is not None and not session_resume_methods(answer)
        failure = {"error": str(error), "next": decision.text}
        self._log.error("component failed", **{**error.private_details(), **failure})
        if self.role == "agent":
            self._turns.end_turns(FailureErrors.of(error))
        match decision.action:
            case "restart":
                self._enter(_State.BACKING_OFF, start_at=trio.current_time() + decision.delay)
                if self.link.queue is None:
                    self.link.start_queueing()
                self.link.disconnect(FailureErrors.of(error))
            case "bypass":
                self._enter(_State.STOPPING)
                self.link.disconnect(FailureErrors.of(error))
                self.host.bypass(self, error)
                self.link.release_queue_past()
            case "end_chain":
                self.link.disconnect(FailureErrors.of(error))
                self.link.release_queue()
                self._fail(error)
        self.host.flusher.made_room()  # its backlog is gone

    def _speaks_version_2(self) -> bool:
        return (self.initialization.result or {}).get("protocolVersion") == 2

    # -- failed starts -----------------------------------------------------------------------------

    def _end_process_for_other_dialect(self) -> None:
        """Kill the process; the handshake continues in a new one."""
        self._log.debug(
            "component restarting in the other dialect",
            dialect=self.initialization.dialect,
        )
        self._signal(signal.SIGKILL)

    def _fail_start(self, reason: str) -> None:
        """Fail a handshake that cannot succeed: the start, or the current attempt to restart."""
        reason += f"; {stopped}" if (stopped := self.stopped) else ""
        if self._was_initialized:
            self._kill(f"could not be started again: {reason}")
            return
        self._fail(handshake_error(self.spec, self._current_run, reason))

    def _fail(self, error: StartError | ComponentExited) -> None:
        if self._state is not _State.FAILED:
            self._enter(_State.FAILED)
            self.host.component_failed(self, error)

    def _report(self, event: str, detail: str, message: dict[str, object]) -> None:
        self._log.warning(event, detail=detail, **message)

    def _kill(self, end_cause: str) -> None:
        if self._current_run is not None:
            self._current_run.end_cause = end_cause
            self._signal(signal.SIGKILL)

    def _signal(self, number: signal.Signals) -> None:
        if self._current_run is not None:
            self._current_run.endpoint.signal(number)
