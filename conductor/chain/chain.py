"""The chain of one client: starts with its `initialize`, ends in order.

In: the client's transport, and a `ChainSpec`. Out: an `Ending`, when the client closes the
transport, when `stop` is called, or when a component without which the chain cannot continue fails
after its start; a failed start is answered, and can be tried again.

The parts: `client_end` has the client's connection, which may be lost and replaced, `startup_gate`
holds the client's messages back until the chain is initialized, `components` starts, connects and
replaces the components, `back_pressure` says who is read, `client_turns` knows the client's
turns, `shutdown` ends the chain. Sessions may have chains of their own: `session_chains`.
"""

from __future__ import annotations

from typing import Any, Final, Literal

import attrs
import msgspec
import trio

from conductor.adapters.negotiated import Announced, announced_by_agent, announced_by_client
from conductor.chain.back_pressure import BackPressure
from conductor.chain.client_end import ClientEnd
from conductor.chain.client_turns import ClientTurns
from conductor.chain.components import ChainComponents, ChainSpec
from conductor.chain.login_methods import WithheldLogin, for_client
from conductor.chain.login_words import TerminalLogin
from conductor.chain.session_chains import ChainChoice, SessionChains
from conductor.chain.shutdown import Ending, Shutdown
from conductor.chain.start_failure import FailureContext
from conductor.chain.startup_gate import StartupGate
from conductor.control import running_chains
from conductor.errors import ComponentError, ConductorError
from conductor.log import get_logger
from conductor.routing.capabilities import with_mcp_over_acp
from conductor.routing.component import Component
from conductor.routing.envelope import marked
from conductor.routing.link import Link
from conductor.routing.port import connect_ports
from conductor.secrets.masking import redact
from conductor.supervision.turn_observer import TurnObserver
from conductor.tracing.recorder import TraceRecorder, current_recorder, report_failure
from conductor.transport.base import Transport
from conductor.transport.io_loop import Flusher

__all__ = ["Chain"]

log: Final = get_logger(component="conductor")


@attrs.define(eq=False, repr=False)
class Chain:
    """Serves one client over `transport` with the components of `spec`."""

    _first_transport: Transport = attrs.field(alias="transport")
    spec: ChainSpec
    recorder: TraceRecorder | None = attrs.field(default=None, kw_only=True)
    """Records what passes."""
    plugin_nursery: trio.Nursery | None = attrs.field(default=None, kw_only=True)
    """Nursery for the plugins: `run` returns although one does not end, and leaves it to the
    owner of the nursery; see `abandoned_plugins`. Without it, `run` waits for them."""
    failure_context: FailureContext | None = attrs.field(default=None, kw_only=True)
    """Enables the start-failure agent; without it the client gets the error of a failed start."""
    choice: ChainChoice | None = attrs.field(default=None, kw_only=True)
    """Chooses the chain of each session; without it, all have one of this spec."""
    terminal_login: TerminalLogin = attrs.field(default="kept", kw_only=True)
    is_for_session: bool = attrs.field(default=False, kw_only=True)
    """Whether it is a further chain, started for a session that is waiting: see `StartupGate`."""
    flusher: Flusher = attrs.field(factory=Flusher, init=False)
    client_end: ClientEnd = attrs.field(init=False)
    components: list[Component] = attrs.field(factory=list, init=False)
    """The one nearest the client first; empty before the start."""
    initialized: trio.Event = attrs.field(factory=trio.Event, init=False)
    startup_gate: StartupGate = attrs.field(init=False)
    back_pressure: BackPressure = attrs.field(init=False)
    _hosted: ChainComponents = attrs.field(init=False)
    _shutdown: Shutdown = attrs.field(init=False)
    _turns: ClientTurns | None = attrs.field(default=None, init=False)
    _sessions: SessionChains | None = attrs.field(default=None, init=False)
    _ending: Ending | None = attrs.field(default=None, init=False)
    _end: trio.Event = attrs.field(factory=trio.Event, init=False)
    _began: float = attrs.field(default=0.0, init=False)
    """The time of the last start."""
    _reading: trio.CancelScope = attrs.field(factory=trio.CancelScope, init=False)

    def __attrs_post_init__(self) -> None:
        spec = self.spec
        role: Literal["client", "parent"] = "client" if spec.mode == "agent" else "parent"
        self.client_end = ClientEnd(self._first_transport, role, self.flusher, spec.limits)
        self.startup_gate = StartupGate(
            start=self._start,
            patch_result=self._patch_result,
            on_open=self._on_started,
            on_start_failed=lambda: self._hosted.discard(),
            on_error=_log_failed_start,
            on_removed=self.client_end.on_first_request,
            failure_context=self.failure_context,
            refusing=lambda: self._hosted.refusing(),
            max_initialize=spec.limits.max_initialize_bytes,
            is_for_session=self.is_for_session,
        )
        self.client.plain.insert(self.startup_gate)
        self.back_pressure = BackPressure(self.client_end, self.components, self.startup_gate)
        self._hosted = ChainComponents(
            spec,
            self.components,
            self.client_end,
            self.back_pressure,
            self._on_failed,
            self.recorder,
        )
        self._shutdown = Shutdown(self.client_end, self._hosted, spec.stop_timeout)
        if self.terminal_login == "withheld":
            self.client.plain.insert(WithheldLogin())
        if self.choice is not None or (spec.session_processes and not self.is_for_session):
            self._sessions = self._shutdown.further = SessionChains(
                self.client_end,
                self.startup_gate,
                self.back_pressure,
                spec,
                self.choice,
                self._further_chain,
                explains=self.failure_context is not None,
            )
        if spec.mode == "agent" and not spec.is_supervised:
            self._turns = self._shutdown.turns = ClientTurns(
                self.client_end, self._hosted, self.startup_gate
            )
            if self._sessions is not None:
                self._turns.is_elsewhere = self._sessions.has

    async def run(self) -> Ending:
        """Serve until the end; when it returns, all components have ended, except for plugins that
        were given up."""
        current_recorder.set(self.recorder)
        shown = _Status(
            self.recorder, self.client_end, self.components, self.startup_gate, self._turns
        )
        running_chains.add(shown)
        try:
            async with trio.open_nursery() as nursery:
                self._hosted.nursery = nursery
                self._hosted.plugin_nursery = self.plugin_nursery
                if self._sessions is not None:
                    self._sessions.nursery = nursery
                nursery.start_soon(self._serve_client, nursery)
                if self._turns is not None:
                    nursery.start_soon(self._turns.run)
                await self._end.wait()
                assert self._ending is not None
                await self._shutdown.end_turns(self._ending)
                self._reading.cancel()
                parent_answers = self.spec.is_supervised and self._ending.reason == "failed"
                await self._shutdown.run(self._ending, answers=not parent_answers)
                nursery.cancel_scope.cancel()
        except Exception:  # a mistake in the conductor itself
            report_failure()
            raise
        finally:
            running_chains.remove(shown)
            for component in self._hosted.tasks:  # plugins in another nursery
                component.kill()
        assert self._ending is not None
        if self.startup_gate.was_attempted:
            log.lifecycle("chain ended", reason=self._ending.reason)
        if self.recorder is not None:
            self.recorder.end()
        return self._ending

    @property
    def client(self) -> Link:
        """The client's link."""
        return self.client_end.link

    def turn_observer(self) -> TurnObserver:
        """Knows the client's turns. Call before `run`."""
        if self._turns is not None:
            return self._turns.observer
        return TurnObserver(self.client, lambda: self.startup_gate.version == 2)

    def stop(self) -> None:
        """End in order, as after EOF from the client, without waiting for its open requests except
        for turns, which are cancelled."""
        self._finish(Ending("stopped"))

    def kill(self) -> None:
        """End now, without waiting for components or the client."""
        self._finish(Ending("stopped"))
        for component in self.components:
            component.kill()
        if self._sessions is not None:
            self._sessions.kill()
        self._shutdown.hurry()

    # -- starting ----------------------------------------------------------------------------------

    def _start(self) -> None:
        """Start the components, and connect them with each other and the client."""
        self._began = trio.current_time()
        if self._sessions is not None:
            self._sessions.begin()
        self._hosted.prepare(self.startup_gate.params)
        if self.recorder is not None:
            self.recorder.attach(self.components)
            self.client_end.trace(self.recorder)
        connect_ports(self.client.plain, self._hosted.connect())

    def _further_chain(self, transport: Transport, spec: ChainSpec, name: str) -> Chain:
        """A chain for other sessions of the same client."""
        return Chain(
            transport,
            spec,
            plugin_nursery=self.plugin_nursery,
            failure_context=self.failure_context,
            recorder=None if self.recorder is None else self.recorder.for_chain(name),
            is_for_session=True,
        )

    def _on_failed(self, component: Component, error: ComponentError) -> None:
        """A component has failed: its start, or the whole chain, fails too."""
        if not self.initialized.is_set():
            self.startup_gate.fail(error)
            return
        log.error("component failed, chain ends", error=str(error), **error.private_details())
        self.client_end.tell_idle_sessions(error)
        self._hosted.end_turns_behind(component, error)
        self._finish(Ending("failed", error))

    def _patch_result(self, result: bytes) -> bytes:
        result = for_client(result, self.terminal_login, self.components)
        if self._sessions is not None:
            result = self._sessions.with_session_close(result)
        if self.client.dialect == "_meta":
            result = marked(result)
        return with_mcp_over_acp(result) if self.spec.announces_mcp_over_acp else result

    def _on_started(self) -> None:
        gate = self.startup_gate
        log.lifecycle(
            "chain initialized",
            version=gate.version,
            components=[each.name for each in self.components],
            seconds=round(trio.current_time() - self._began, 3),
        )
        self.client_end.on_initialized(
            gate.params, gate.version, None if self._ending else gate.answer
        )
        self.flusher.made_room()
        self.initialized.set()

    async def _serve_client(self, nursery: trio.Nursery) -> None:
        with self._reading:
            await self.client_end.serve(nursery, self.back_pressure.client_gate)
            self._shutdown.begin()
            await self._shutdown.wait_started(self.startup_gate)
            never_started = self.startup_gate.was_attempted and not self.initialized.is_set()
            self._finish(Ending("never started" if never_started else "client"))

    def _finish(self, ending: Ending) -> None:
        if self._ending is None:
            self._ending = ending
            self.client_end.initialize_result = None
            self._shutdown.begin()
            self._end.set()


def _log_failed_start(error: ConductorError) -> None:
    text = redact(str(error))
    log.reported_error("chain failed to start", error=text, **error.private_details())


class _Status(msgspec.Struct, eq=False):
    """A chain for `control.running_chains`, as `ps` shows it. Only reads, since another thread
    calls it. `components` is the chain's list, which changes."""

    recorder: TraceRecorder | None
    client_end: ClientEnd
    components: list[Component]
    gate: StartupGate
    client_turns: ClientTurns | None

    def status(self) -> dict[str, Any]:
        """Client, agent, components, and running turns, with seconds since they began; as JSON."""
        components, client = list(self.components), self.client_end
        turns = [] if self.client_turns is None else self.client_turns.turns()
        agent = _name(announced_by_agent(self.gate.answer))
        if agent is None and components and components[-1].agent_port is None:
            agent = components[-1].name
        return {
            "name": "conductor" if self.recorder is None else self.recorder.chain,
            "mode": "agent" if client.role == "client" else "proxy",
            "client": _name(announced_by_client(self.gate.params)),
            "client_label": client.label,
            "sessions": client.sessions,
            "agent": agent,
            "components": [_component(each) for each in components],
            "turns": [{"session": name, "seconds": round(seconds, 3)} for name, seconds in turns],
        }


def _component(component: Component) -> dict[str, Any]:
    return {
        "name": component.name,
        "kind": component.kind,
        "pid": getattr(component, "pid", None),
        "state": getattr(component, "state", "running"),
        "restarts": getattr(component, "restarts", 0),
    }


def _name(of: Announced) -> str | None:
    return f"{of.name} {of.program_version}".rstrip() or None
