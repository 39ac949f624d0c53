"""The chain of one client: starts with its `initialize`, ends in order.

In: the client's transport, and a function that makes the components. Out: an `Ending`, when the
client closes the transport, when `stop` is called, or when a component without which the chain
cannot continue fails after its start; a failed start is answered, and can be tried again. A client
that may return over another transport can be detached in between (`detach_client`,
`reattach_client`).

The parts: `client_end` has the client's connection, `startup_gate` holds the client's messages back
until the chain is initialized, `components` starts, connects and replaces the components,
`back_pressure` says who is read, `shutdown` ends the chain. Sessions of other projects have chains
of their own: `session_chains`.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Literal

import attrs
import trio

from conductor.acp import SESSION_SETUP_METHODS, session_id_of
from conductor.acp.turns import Ended, Turns
from conductor.adapters.negotiated import announced_by_client
from conductor.chain.back_pressure import BackPressure
from conductor.chain.bridge_insertion import BridgeInsertion
from conductor.chain.cancelled_turns import CancelledTurns
from conductor.chain.client_end import ClientEnd
from conductor.chain.client_params import client_params
from conductor.chain.components import ChainComponents
from conductor.chain.login_methods import for_client
from conductor.chain.login_words import TerminalLogin
from conductor.chain.shutdown import Ending, Shutdown
from conductor.chain.start_failure import FailureContext
from conductor.chain.startup_gate import StartupGate
from conductor.chainfile.model import STOP_TIMEOUT
from conductor.control import running_chains
from conductor.errors import ChainFileError, ComponentError, ConductorError
from conductor.jsonrpc.in_flight import InFlightRequest
from conductor.jsonrpc.messages import Payload, exception_to_error
from conductor.limits import Limits
from conductor.log import get_logger
from conductor.redaction import redact
from conductor.routing.capabilities import with_mcp_over_acp
from conductor.routing.component import Component
from conductor.routing.link import Link
from conductor.routing.notices import Notices
from conductor.routing.port import Port
from conductor.routing.stage import ForwardRequest, Stage
from conductor.supervision.cancel_monitor import CancelMonitor
from conductor.supervision.deadline_timer import NEVER
from conductor.tracing.recorder import TraceRecorder, current_recorder, report_failure
from conductor.transport.base import Transport
from conductor.transport.io_loop import Flusher

if TYPE_CHECKING:
    from conductor.chain.further import FurtherChains
    from conductor.plugins.plugin_component import PluginComponent
    from conductor.projects.chooser import ChainChooser

__all__ = ["Chain"]

log: Final = get_logger(component="conductor")


@attrs.define(eq=False, repr=False)
class Chain:
    """Serves one client over `transport`.

    `make` builds the components, the one nearest the client first; it is called for every attempt
    to start, and may raise `ConductorError`. In "proxy" mode the client is a parent conductor,
    which is also the successor of the last component. `stop_timeout` is in seconds.
    """

    _first_transport: Transport = attrs.field(alias="transport")
    make: Callable[[], Sequence[Component]]
    mode: Literal["agent", "proxy"] = "agent"
    limits: Limits = attrs.field(factory=Limits)
    stop_timeout: float = STOP_TIMEOUT
    answers_loss: bool = True
    """Whether open requests are answered when a component fails; if not, the parent does."""
    plugin_nursery: trio.Nursery | None = None
    """Nursery for the plugins: `run` returns although one does not end, and leaves it to the
    owner of the nursery; see `abandoned_plugins`. Without it, `run` waits for them."""
    enforces_cancel_timeout: bool = True
    """Whether the chain ends a cancelled turn that still runs after the agent's `cancel_timeout`.
    In "proxy" mode, the parent conductor does so."""
    failure_context: FailureContext | None = None
    """Enables the start-failure agent; without it the client gets the error of a failed start."""
    recorder: TraceRecorder | None = None
    """Records what passes."""
    make_bridge: Callable[[], PluginComponent] | None = None
    """Makes the MCP bridge, inserted before a parent conductor that takes no MCP over ACP."""
    chooser: ChainChooser | None = None
    """Chooses the chain of each session; `make` makes the first one, for `chooser.first()`. Without
    it, all sessions have that."""
    further_chains: Callable[..., FurtherChains] | None = None
    """Makes a `session_chains.SessionChains`, of its members; given with `chooser`."""
    terminal_login: TerminalLogin = "kept"
    client_label: str = ""
    """The client's device for `ps`, in a server: its name or address."""
    is_for_session: bool = False
    """Whether it is started for a session that is waiting: see `StartupGate`."""
    announces_mcp_over_acp: bool = attrs.field(default=False, init=False)
    """Whether the `initialize` result announces MCP servers over ACP even if the agent does not.
    The test kit sets it; otherwise the bridge announces what the agent supports."""
    flusher: Flusher = attrs.field(factory=Flusher, init=False)
    client_end: ClientEnd = attrs.field(init=False)
    components: list[Component] = attrs.field(factory=list, init=False)
    """The one nearest the client first; empty before the start."""
    initialized: trio.Event = attrs.field(factory=trio.Event, init=False)
    _startup_gate: StartupGate = attrs.field(init=False)
    _back_pressure: BackPressure = attrs.field(init=False)
    _hosted: ChainComponents = attrs.field(init=False)
    _shutdown: Shutdown = attrs.field(init=False)
    _cancelled_turns: CancelledTurns | None = attrs.field(default=None, init=False)
    _nursery: trio.Nursery = attrs.field(init=False)
    _ending: Ending | None = attrs.field(default=None, init=False)
    _end: trio.Event = attrs.field(factory=trio.Event, init=False)
    _further: FurtherChains | None = attrs.field(default=None, init=False)
    _settled: trio.Event = attrs.field(factory=trio.Event, init=False)
    _began: float = attrs.field(default=0.0, init=False)
    """The time of the last start."""
    _start_error: ConductorError | None = attrs.field(default=None, init=False)
    _reading: trio.CancelScope = attrs.field(factory=trio.CancelScope, init=False)

    def __attrs_post_init__(self) -> None:
        role: Literal["client", "parent"] = "client" if self.mode == "agent" else "parent"
        self.client_end = ClientEnd(self._first_transport, role, self.flusher, self.limits)
        self._startup_gate = StartupGate(
            self.client_end.port,
            start=self._start,
            patch_result=self._patch_result,
            on_open=self._on_started,
            on_start_failed=self._on_start_failed,
            describe_failure=None if self.failure_context is None else self._describe_failure,
            max_initialize=self.limits.max_initialize_bytes,
            is_for_session=self.is_for_session,
        )
        self._back_pressure = BackPressure(
            self.flusher, self.limits, self.client_end, self.components, self._startup_gate
        )
        self._hosted = ChainComponents(
            self.components,
            self.client_end,
            self._back_pressure,
            self._on_failed,
            self.recorder,
            self.flusher,
            self.limits,
        )
        if self.terminal_login == "withheld":
            from conductor.chain.login_methods import WithheldLogin

            self.client.plain.insert(WithheldLogin())
        if self.chooser is not None:
            self._startup_gate.choose_chain = self._choose_chain
            self.client.plain.insert(_ChainChoice(self._choose_chain))
        self._shutdown = Shutdown(self.client_end, self._hosted, self.flusher, self.stop_timeout)
        if self.enforces_cancel_timeout and self.mode == "agent":
            self._cancelled_turns = CancelledTurns(
                self._hosted, self.client, self.components, self._startup_gate
            )
            self._hosted.cancelled_turns = self._shutdown.turns = self._cancelled_turns

    async def run(self) -> Ending:
        """Serve until the end; when it returns, all components have ended, except for plugins that
        were given up."""
        current_recorder.set(self.recorder)
        running_chains.add(self)
        try:
            async with trio.open_nursery() as nursery:
                self._nursery = nursery
                nursery.start_soon(self.flusher.run)
                nursery.start_soon(self._serve_client)
                if self._cancelled_turns is not None:
                    nursery.start_soon(self._cancelled_turns.run)
                await self._end.wait()
                assert self._ending is not None
                await self._shutdown.end_turns(self._ending)
                self._reading.cancel()
                failed = self._ending.reason == "failed"
                await self._shutdown.run(self._ending, answers=self.answers_loss or not failed)
                nursery.cancel_scope.cancel()
        except Exception:  # a mistake in the conductor itself
            report_failure()
            raise
        finally:
            running_chains.remove(self)
            for component in self._hosted.tasks:  # plugins in another nursery
                component.kill()
        assert self._ending is not None
        if self._startup_gate.was_attempted:
            log.lifecycle("chain ended", reason=self._ending.reason)
        if self.recorder is not None:
            self.recorder.end()
        return self._ending

    @property
    def client(self) -> Link:
        """The client's link."""
        return self.client_end.link

    @property
    def transport(self) -> Transport:
        """The transport that the client uses now."""
        return self.client_end.transport

    @property
    def is_held_back(self) -> bool:
        """Whether back-pressure stops the client or the agent from being read."""
        gates = self._back_pressure.client_gate(self.transport), self._back_pressure.edge_gate()
        return not all(gate.open for gate in gates)

    def status(self) -> dict[str, Any]:
        """Status for `ps`, as JSON; called by another thread."""
        from conductor.chain.status import chain_status

        turns = [] if self._cancelled_turns is None else self._cancelled_turns.turns()
        gate = self._startup_gate
        return {
            "name": "conductor" if self.recorder is None else self.recorder.chain,
            "mode": self.mode,
            "client_label": self.client_label,
            "sessions": self.client_end.sessions,
            **chain_status(list(self.components), gate.params, gate.answer, turns),
        }

    def watch_turns(
        self, turn_ended: Callable[[Ended[InFlightRequest]], None]
    ) -> Turns[InFlightRequest]:
        """The client's turns, for a server; `turn_ended` gets the end of each one that a state
        tells of (version 2). Call before `run`."""
        if self._cancelled_turns is not None:
            monitor = self._cancelled_turns.monitor
        else:  # the parent ends what hangs: nothing is overdue here
            gate = self._startup_gate
            monitor = CancelMonitor(NEVER, lambda: gate.version == 2, lambda overdue: None)
            self.client.observe_received(monitor)
        monitor.turn_ended = turn_ended
        return monitor.turns

    def busy_handlers(self) -> dict[str, dict[str, str]]:
        """Of each component with a busy handler, log fields for it: `handler`, `method`."""
        found = {each.name: each.busy_handler() for each in self.components}
        return {name: fields for name, fields in found.items() if fields}

    def stop(self) -> None:
        """End in order, as after EOF from the client, without waiting for its open requests except
        for turns, which are cancelled."""
        self._finish(Ending("stopped"))

    def kill(self) -> None:
        """End now, without waiting for components or the client."""
        self._finish(Ending("stopped"))
        for component in self.components:
            component.kill()
        if self._further is not None:
            self._further.kill()
        self._shutdown.hurry()

    # -- detaching the client ----------------------------------------------------------------------

    def allow_reattach(self) -> None:
        """Keep unanswered requests from now on, so that the client can be detached and return.

        Without effect in "proxy" mode: a parent conductor restarts the chain instead.
        """
        if self._cancelled_turns is not None:
            self.client_end.allow_reattach(self._cancelled_turns.monitor.turns)

    def detach_client(self, unread: bytes = b"") -> bool:
        """The client is disconnected: continue without it until `reattach_client` or `stop`.

        `unread` is the end of what was written to its transport and was not read. The caller closes
        the transport afterwards. Returns false if the chain is not initialized, is ending, or
        `allow_reattach` was not called.
        """
        if self._ending or self._startup_gate.state != "open":
            return False
        return self.client_end.detach(unread, self._startup_gate.answer)

    def reattach_client(self, transport: Transport) -> None:
        """The client has returned over another transport."""
        self.client_end.reattach(transport)

    # -- starting ----------------------------------------------------------------------------------

    def _start(self) -> Port:
        """Start and connect the components; returns the port that the client is connected to."""
        self._start_error = None
        self._began = trio.current_time()
        self._settled = trio.Event()
        self._hosted.nursery, self._hosted.plugin_nursery = self._nursery, self.plugin_nursery
        if self.chooser is not None:
            self.chooser.begin(self._startup_gate.params, self._startup_gate.setup_params)
        client_params.set(self._startup_gate.params or b"{}")
        try:
            self._hosted.prepare(self.make)
        except ConductorError as exc:
            self._start_error = exc
            log.reported_error(
                "chain failed to start", error=redact(str(exc)), **exc.private_details()
            )
            raise
        if self.recorder is not None:
            self.recorder.attach(self.components)
            self.client_end.trace(self.recorder)
            self._startup_gate.replace_client(self.client_end.port)
        if self.make_bridge is not None:
            insert = partial(self._hosted.insert, before=None)
            assert self.client.enveloped is not None  # a parent conductor
            stage = BridgeInsertion(self.client, self.make_bridge, insert)
            self.client.enveloped.insert(stage)
        return self._hosted.connect()

    def _choose_chain(self, call: InFlightRequest, method: str, params: Payload | None) -> bool:
        """Set up a session in the chain of its directory; false if that is the first chain."""
        if method not in SESSION_SETUP_METHODS or self._startup_gate.state != "open":
            return False
        session = session_id_of(params)
        if session is not None and session in self.client.session_log.sessions:
            return False
        assert self.chooser is not None
        try:
            try:
                plan = self.chooser.choose(params)
            except ChainFileError as mistakes:
                if self.failure_context is None:
                    raise
                plan = self.chooser.explaining(mistakes)
            if plan is None:
                return False
            return self._further_chains().open(plan, call, method, params)
        except ConductorError as exc:
            call.source.respond(call, None, exception_to_error(exc))
            return True

    def _further_chains(self) -> FurtherChains:
        if self._further is None:
            assert self.further_chains is not None
            self._further = further = self.further_chains(
                self.chooser,
                self.client_end,
                self._startup_gate,
                self.flusher,
                self._back_pressure.edge_gate,
                self._nursery,
                self.recorder,
                self.plugin_nursery,
                self.failure_context,
            )
            self._shutdown.further = further
            self._back_pressure.further_backlog = lambda: further.backlog
            if self._cancelled_turns is not None:
                self._cancelled_turns.is_elsewhere = further.has_overdue
        return self._further

    def _on_failed(self, component: Component, error: ComponentError) -> None:
        """A component has failed: its start, or the whole chain, fails too."""
        if self._startup_gate.state != "open":
            self._start_error = error
            log.reported_error("chain failed to start", error=str(error), **error.private_details())
            self._startup_gate.fail(error)
            return
        log.error("component failed, chain ends", error=str(error), **error.private_details())
        self._tell_idle_sessions(error)
        self._hosted.end_turns_behind(component, error)
        self._finish(Ending("failed", error))

    def _tell_idle_sessions(self, error: ComponentError) -> None:
        """Tell the user why the chain ends; a running turn ends with the error.

        In "proxy" mode, the parent conductor says what it does about the failure.
        """
        if self._cancelled_turns is None:
            return
        title, _ = error.public_details()
        in_turn = {session for session, _ in self._cancelled_turns.turns()}
        in_turn |= self.client_end.just_answered()
        for session in self.client_end.sessions:
            if session not in in_turn:
                text = redact(title)
                self.client_end.send_notice(session, text, "the chain ends", severity="error")

    def _describe_failure(self, error: bytes) -> str:
        """The text of the start-failure agent."""
        from conductor.chain.start_failure import describe_start_failure

        assert self.failure_context is not None
        return describe_start_failure(
            error,
            component=None if self._start_error is not None else self._hosted.refusing(),
            file=self.failure_context.file,
            log=self.failure_context.log,
            client=announced_by_client(self._startup_gate.params).name,
        )

    def _patch_result(self, result: bytes) -> bytes:
        command = [sys.executable, *sys.orig_argv[1:]]
        result = for_client(result, self.terminal_login, self.components, command)
        return with_mcp_over_acp(result) if self.announces_mcp_over_acp else result

    def _on_start_failed(self) -> None:
        """A start has failed: discard its components."""
        self._hosted.discard()
        self._settled.set()
        self.flusher.made_room()

    def _on_started(self) -> None:
        log.lifecycle(
            "chain initialized",
            version=self._startup_gate.version,
            components=[each.name for each in self.components],
            seconds=round(trio.current_time() - self._began, 3),
        )
        self.client.initialized = True
        self.client_end.capabilities.announced = announced_by_client(self._startup_gate.params)
        self.client_end.notices = Notices.of(self._startup_gate.params, self._startup_gate.version)
        self.flusher.made_room()
        self.initialized.set()
        self._settled.set()

    async def _serve_client(self) -> None:
        with self._reading:
            await self.client_end.serve(self._nursery, self._back_pressure.client_gate)
            self._shutdown.begin()
            if self._startup_gate.state == "starting":
                # deliver the queue of the startup gate
                await self._shutdown.wait_settled(self._settled)
            if self._startup_gate.state == "open":
                self._finish(Ending("client"))
            else:
                self._finish(
                    Ending("never started" if self._startup_gate.was_attempted else "client")
                )

    # -- the end -----------------------------------------------------------------------------------

    def _finish(self, ending: Ending) -> None:
        if self._ending is None:
            self._ending = ending
            self._shutdown.begin()
            self._end.set()


class _ChainChoice(Stage):
    """Asks `choose` about each set-up of a session; if it returns true, it has taken it."""

    __slots__ = ("_choose",)

    name = "chain choice"
    received = SESSION_SETUP_METHODS

    def __init__(self, choose: Callable[[InFlightRequest, str, Payload | None], bool]) -> None:
        self._choose = choose

    def receive_request(
        self, forward: ForwardRequest, call: InFlightRequest, method: str, params: Payload | None
    ) -> None:
        if not self._choose(call, method, params):
            forward(call, method, params)
