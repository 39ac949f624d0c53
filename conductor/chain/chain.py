"""The chain of one client: connects its components, starts them lazily, stops them in order.

A chain serves one client transport. It ends when the client closes the transport, when `stop` is
called, or when a component fails that it cannot continue without. A client that may return over
another transport can be detached in between (`detach_client`, `reattach_client`).

Order of the end: requests in flight are answered, the components' inputs are closed one after the
other from the client to the agent, components that remain get SIGTERM and then SIGKILL, open
requests are answered with an error, and the client's write buffer is flushed.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Any, Literal

import attrs
import msgspec
import trio

from conductor.chain.back_pressure import BackPressure
from conductor.chain.cancelled_turns import CancelledTurns
from conductor.chain.shutdown import end_components, wait_ended
from conductor.chain.startup_gate import StartupGate
from conductor.chainfile.model import STOP_TIMEOUT
from conductor.control import registry
from conductor.errors import ComponentError, ConductorError, StartError
from conductor.jsonrpc.connection import Connection
from conductor.jsonrpc.messages import INTERNAL_ERROR, encode_error
from conductor.limits import Limits
from conductor.log import get_logger
from conductor.redaction import redact
from conductor.routing.capabilities import with_mcp_over_acp
from conductor.routing.component import Component, ComponentHost
from conductor.routing.failure_errors import FailureErrors
from conductor.routing.link import Link
from conductor.routing.notices import Notices, Severity
from conductor.routing.port import Port, connect_ports
from conductor.tracing.recorder import Recorder, current_recorder
from conductor.transport.base import Transport
from conductor.transport.io_loop import Flusher, ReadGate, read_loop, write_loop
from conductor.transport.spawn import end_prestarted

if TYPE_CHECKING:
    from conductor.chain.detached_client import DetachedClient
    from conductor.chain.undelivered import UnansweredRequests

__all__ = ["Chain", "Ending", "FailureContext"]

_CLIENT_CHECK_INTERVAL = 0.1
"""Seconds between two checks whether the client still reads."""
_KILL_TIMEOUT, _FORCED_KILL_TIMEOUT = 3.0, 1.0
"""Seconds that components have to end after SIGKILL; a process with pipes that other processes hold
open takes two. The second is for a second stop request (`kill`)."""
_FINAL_WRITE_TIMEOUT = 5.0
"""Seconds that the client has to read the rest of the write buffer at the end."""

_CLIENT_GONE = encode_error(INTERNAL_ERROR, "The client is gone")

log = get_logger(component="conductor")


class Ending(msgspec.Struct, frozen=True):
    """The reason why a chain ended."""

    reason: Literal["client", "stopped", "failed", "never started"]
    """"never started": the client sent `initialize`, but no start succeeded."""
    error: ComponentError | None = None


class FailureContext(msgspec.Struct, frozen=True):
    """Places to mention when a start fails, as paths; see `Chain.failure_context`."""

    file: str | None = None
    """The chain file."""
    log: str | None = None
    """The file that the conductor's stderr is written to, if it is one."""


@attrs.define(eq=False, repr=False)
class Chain(ComponentHost):
    """Serves one client over `transport`.

    `make` builds the components, the one nearest the client first; it is called for every attempt
    to start, and may raise `ConductorError`. In "proxy" mode the client is a parent conductor,
    which is also the successor of the last component. `stop_timeout` is in seconds.
    """

    transport: Transport
    make: Callable[[], Sequence[Component]]
    mode: Literal["agent", "proxy"] = "agent"
    limits: Limits = attrs.field(factory=Limits)
    stop_timeout: float = STOP_TIMEOUT
    bridged: bool = True
    """Whether the `initialize` result announces MCP servers over ACP even if the agent does not."""
    answers_loss: bool = True
    """Whether open requests are answered when a component fails; if not, the parent does."""
    on_still_running: Callable[[Ending], None] | None = None
    """Called if a component still runs after SIGKILL; without it, `run` waits for the component."""
    enforces_cancel_timeout: bool = True
    """Whether the chain ends a cancelled turn that still runs after the agent's `cancel_timeout`.
    In "proxy" mode, the parent conductor does so."""
    failure_context: FailureContext | None = None
    """Enables the start-failure agent; without it the client gets the error of a failed start."""
    wait_for_share: Callable[[], Awaitable[None]] | None = None
    """Awaited before a plugin handles the next message; of a server, see `server.fair_share`."""
    recorder: Recorder | None = None
    """Records what passes."""
    client_label: str = ""
    """Who the client is, for `ps`: the principal or the address, of a server."""
    flusher: Flusher = attrs.field(factory=Flusher, init=False)
    client: Link = attrs.field(init=False)
    components: list[Component] = attrs.field(factory=list, init=False)
    initialized: trio.Event = attrs.field(factory=trio.Event, init=False)
    _client_port: Port = attrs.field(init=False)
    """The client's port, traced if there is a recorder."""
    _traced_notice_port: Port | None = attrs.field(default=None, init=False)
    _cancelled_turns: CancelledTurns | None = attrs.field(default=None, init=False)
    _startup_gate: StartupGate = attrs.field(init=False)
    _back_pressure: BackPressure = attrs.field(init=False)
    unanswered: UnansweredRequests | None = attrs.field(default=None, init=False)
    """Requests to the client and prompts of the client, if it may be detached and return."""
    _detached: DetachedClient | None = attrs.field(default=None, init=False)
    _reattached: trio.Event = attrs.field(factory=trio.Event, init=False)
    _connection: Connection = attrs.field(init=False)
    _nursery: trio.Nursery = attrs.field(init=False)
    _ending: Ending | None = attrs.field(default=None, init=False)
    _end: trio.Event = attrs.field(factory=trio.Event, init=False)
    _settled: trio.Event = attrs.field(factory=trio.Event, init=False)
    _notices: Notices = attrs.field(factory=Notices, init=False)
    _inserted: set[Component] = attrs.field(factory=set, init=False)
    _start_error: ConductorError | None = attrs.field(default=None, init=False)
    _reading: trio.CancelScope = attrs.field(factory=trio.CancelScope, init=False)
    _writing: trio.CancelScope = attrs.field(factory=trio.CancelScope, init=False)
    _stopping: trio.CancelScope = attrs.field(factory=trio.CancelScope, init=False)

    def __attrs_post_init__(self) -> None:
        role: Literal["client", "parent"] = "client" if self.mode == "agent" else "parent"
        self.client = Link("client", role, _report)
        self.client.session_log.limits = self.limits
        self._connect(self.transport)
        self._client_port = self.client.plain
        self._startup_gate = StartupGate(
            self.client.plain,
            start=self._start,
            patch_result=self._patch_result,
            on_open=self._on_started,
            on_start_failed=self._on_start_failed,
            describe_failure=None if self.failure_context is None else self._describe_failure,
            max_initialize=self.limits.max_initialize_bytes,
        )
        self._back_pressure = BackPressure(
            self.flusher, self.limits, self.client, self.components, self._startup_gate
        )
        if self.enforces_cancel_timeout and self.mode == "agent":
            self._cancelled_turns = CancelledTurns(
                self, self.client, self.components, self._startup_gate
            )

    async def run(self) -> Ending:
        """Serve until the end; when it returns, all components have ended."""
        current_recorder.set(self.recorder)
        registry.add(self)
        try:
            async with trio.open_nursery() as nursery:
                self._nursery = nursery
                nursery.start_soon(self.flusher.run)
                nursery.start_soon(self._serve_client)
                if self._cancelled_turns is not None:
                    nursery.start_soon(self._cancelled_turns.run)
                await self._end.wait()
                self._reading.cancel()
                await self._shut_down()
                nursery.cancel_scope.cancel()
        finally:
            registry.remove(self)
        if self.recorder is not None:
            self.recorder.end()
        assert self._ending is not None
        return self._ending

    @property
    def is_held_back(self) -> bool:
        """Whether back-pressure stops the client or the agent from being read."""
        gates = self._back_pressure.client_gate(self.transport), self._back_pressure.edge_gate()
        return not all(gate.open for gate in gates)

    def status(self) -> dict[str, Any]:
        """What `ps` shows; called by another thread."""
        from conductor.chain.status import chain_status

        turns = [] if self._cancelled_turns is None else self._cancelled_turns.turns()
        gate = self._startup_gate
        return {
            "name": "conductor" if self.recorder is None else self.recorder.chain,
            "mode": self.mode,
            "client_label": self.client_label,
            "sessions": list(self.client.session_log.sessions),
            **chain_status(list(self.components), gate.params, gate.answer, turns),
        }

    def stop(self) -> None:
        """End in order, as after EOF from the client."""
        self._finish(Ending("stopped"))

    def kill(self) -> None:
        """End now, without waiting for components or the client."""
        self._finish(Ending("stopped"))
        for component in self.components:
            component.kill()
        self._stopping.cancel()

    def break_cycles(self) -> None:
        """Break reference cycles, after `run`.

        Most objects of the chain are then freed at once. A full garbage collection, which would
        free them otherwise, blocks all clients of a server: for up to 120 ms after 100 chains.
        """
        for component in self.components:
            component.break_cycles()
        self.components.clear()
        self.client.break_cycles()
        self._connection.break_cycles()
        del self._startup_gate, self._back_pressure, self._cancelled_turns
        self.unanswered = self._detached = None

    # -- detaching the client --------------------------------------------------------------

    def allow_reattach(self) -> None:
        """Keep unanswered requests from now on, so that the client can be detached and return.

        Without effect in "proxy" mode: a parent conductor restarts the chain instead.
        """
        if self.mode == "agent":
            from conductor.chain.undelivered import UnansweredRequests

            self.unanswered = UnansweredRequests()
            self.unanswered.observe(self.client)

    def detach_client(self, unread: bytes = b"") -> bool:
        """The client is disconnected: continue without it until `reattach_client` or `stop`.

        `unread` is the end of what was written to its transport and was not read. The caller closes
        the transport afterwards. Returns false if the chain is not initialized, is ending, or
        `allow_reattach` was not called.
        """
        from conductor.chain.detached_client import DetachedClient
        from conductor.chain.undelivered import undelivered_messages

        if self._ending or self._startup_gate.state != "open" or self.unanswered is None:
            return False
        if self._detached is None:
            made_room = self.flusher.made_room
            self._detached = self._back_pressure.detached = DetachedClient(
                self.client,
                self._client_port,
                self.unanswered,
                self._startup_gate.answer,
                made_room,
            )
        self._detached.detach(undelivered_messages(self._connection, unread))
        self._connection.abort_writing()
        self._writing.cancel()
        self._reattached = trio.Event()
        return True

    def reattach_client(self, transport: Transport) -> None:
        """The client has returned over another transport."""
        self.transport = transport
        self._reattached.set()

    # -- ComponentHost -----------------------------------------------------------------------------

    def read_gate(self, component: Component) -> ReadGate | None:
        return self._back_pressure.component_gate(component)

    def edge_read_gate(self) -> ReadGate:
        return self._back_pressure.edge_gate()

    def blocking_component(
        self, watcher: Component, cancelled: tuple[Literal["turn", "request"], str]
    ) -> tuple[Component | None, bool]:
        if self._cancelled_turns is None:
            return None, False
        return self._cancelled_turns.blocking_component(watcher, cancelled)

    def on_restarted(self, component: Component, lost_sessions: list[str]) -> None:
        sessions = self.client.session_log.sessions
        for session in list(sessions):
            title = f"{component.name} failed, was restarted"
            if component.agent_port is None and session in lost_sessions:
                title += " and has lost this session"
                self.send_notice(session, title, "start a new one, or load it", severity="error")
                self.client.session_log.forget(session)
            else:
                self.send_notice(session, title)

    def bypass(self, component: Component, error: ComponentError) -> None:
        _connect_past(component)
        title, _ = error.public_details()
        for session in self.client.session_log.sessions:
            self.send_notice(session, redact(title), "the chain goes on without it")

    def component_failed(self, component: Component, error: ComponentError) -> None:
        if component not in self.components:
            return  # it belongs to an abandoned attempt to start
        if component in self._inserted:
            self._remove(component)
            log.error(
                "the chain goes on without a component", error=str(error), **error.private_details()
            )
            return
        if self._startup_gate.state != "open":
            self._start_error = error
            log.reported_error("chain failed to start", error=str(error), **error.private_details())
            self._startup_gate.fail(error)
            return
        log.error("component failed, chain ends", error=str(error), **error.private_details())
        self._finish(Ending("failed", error))

    def insert(self, component: Component, *, before: Component) -> None:
        """Insert a proxy into the running chain; requests in flight do not pass through it.

        If it fails later, it is removed again. Raises `StartError` from `prepare`, and then the
        chain is unchanged.
        """
        assert component.agent_port is not None
        component.prepare(self)
        if self.recorder is not None:
            component.trace(self.recorder)
        self.components.insert(self.components.index(before), component)
        self._inserted.add(component)
        connect_ports(before.client_port.neighbour, component.client_port)
        connect_ports(component.agent_port, before.client_port)
        self._nursery.start_soon(component.run)

    def _remove(self, component: Component) -> None:
        _connect_past(component)
        self._inserted.discard(component)
        self.components.remove(component)

    def send_notice(
        self,
        session: str,
        title: str,
        detail: str | None = None,
        *,
        severity: Severity = "warning",
    ) -> None:
        params = self._notices.params(session, title, detail, severity)
        detached = self._detached
        is_detached = detached is not None and detached.active
        toward_client = (
            detached.chain_port if detached is not None and is_detached else self._notice_port()
        )
        toward_client.notify("session/update", params)

    def _notice_port(self) -> Port:
        """The client's port for what comes from the conductor itself."""
        if self._traced_notice_port is None and self.recorder is not None:
            self._traced_notice_port = self.recorder.trace_notices(self.client.plain)
        return self._traced_notice_port or self.client.plain

    # -- starting ----------------------------------------------------------------------------------

    def _start(self) -> Port:
        """Start all components concurrently and connect them; returns the first client port."""
        self._start_error = None
        self._settled = trio.Event()
        started: list[Component] = []
        try:
            components = list(self.make())
            for component in components:
                component.prepare(self)
                started.append(component)
        except ConductorError as exc:
            for component in started:
                component.kill()
                self._nursery.start_soon(component.run)
            self._start_error = exc
            log.reported_error(
                "chain failed to start", error=redact(str(exc)), **exc.private_details()
            )
            raise
        finally:
            end_prestarted()
        self.components[:] = components
        if components:
            seconds = components[-1].cancel_timeout
            if self._cancelled_turns is not None:
                self._cancelled_turns.set_timeout(seconds)
            for component in components:
                component.set_cancel_timeout(seconds)
        if self.recorder is not None:
            self._trace(self.recorder)
        ports = [component.client_port for component in components]
        for component, successor in zip(components, ports[1:], strict=False):
            assert component.agent_port is not None
            connect_ports(component.agent_port, successor)
        last = components[-1].agent_port if components else None
        if self.mode == "proxy":
            assert self.client.enveloped is not None
            if last is not None:
                successor = self.client.enveloped
                if self.recorder is not None:
                    successor = self.recorder.trace(successor, "successor", "client")
                connect_ports(last, successor)
        for component in components:
            self._nursery.start_soon(component.run)
        if components:
            return ports[0]
        if self.client.enveloped is None:
            raise StartError("conductor", "the chain has no agent")
        return self.client.enveloped  # no components: messages go to the successor

    def _trace(self, recorder: Recorder) -> None:
        """Trace the ports of the components that are about to be connected, and of the client."""
        recorder.attach(self.components)
        self._client_port = recorder.trace(self.client.plain, "client", "agent")
        self._startup_gate.replace_client(self._client_port)

    def _describe_failure(self, error: bytes) -> str:
        """The text of the start-failure agent."""
        from conductor.chain.start_failure_agent import client_name
        from conductor.chain.start_failure_text import describe_start_failure

        assert self.failure_context is not None
        refused = (each.name for each in reversed(self.components) if _answered_with_error(each))
        return describe_start_failure(
            error,
            component=None if self._start_error is not None else next(refused, None),
            file=self.failure_context.file,
            log=self.failure_context.log,
            client=client_name(self._startup_gate.params),
        )

    def _patch_result(self, result: bytes) -> bytes:
        return with_mcp_over_acp(result) if self.bridged else result

    def _on_start_failed(self) -> None:
        """A start has failed: discard its components."""
        self._discard()
        self._settled.set()
        self.flusher.made_room()

    def _on_started(self) -> None:
        self.client.initialized = True
        self._notices = Notices.of(self._startup_gate.params, self._startup_gate.version)
        self.flusher.made_room()
        self.initialized.set()
        self._settled.set()

    def _discard(self) -> None:
        """Kill the components of a failed start."""
        for component in self.components:
            component.kill()
        self.components.clear()

    # -- the client --------------------------------------------------------------------------------

    def _connect(self, transport: Transport) -> None:
        self._connection = self.client.connection = Connection(
            transport, self.client, self.flusher, reports_malformed=True, limits=self.limits
        )

    async def _serve_client(self) -> None:
        with self._reading:
            await self._read_client()
            while self._detached is not None and self._detached.is_detached:
                while not self._reattached.is_set():
                    await self._reattached.wait()
                self._connect(self.transport)
                self._detached.reattach()
                await self._read_client()
            self.client.on_eof(_CLIENT_GONE)
            self.flusher.flush()
            if self._startup_gate.state == "starting":
                await self._wait_settled()  # deliver the queue of the startup gate
            if self._startup_gate.state == "open":
                self._finish(Ending("client"))
            else:
                self._finish(
                    Ending("never started" if self._startup_gate.was_attempted else "client")
                )

    async def _wait_settled(self) -> None:
        """Wait for the end of a start, at most `stop_timeout` seconds or until the client is
        gone."""
        with trio.move_on_after(self.stop_timeout):
            while not self._settled.is_set() and not self.transport.peer_closed_read():
                with trio.move_on_after(_CLIENT_CHECK_INTERVAL):
                    await self._settled.wait()

    async def _read_client(self) -> None:
        self._nursery.start_soon(self._write_client, self._connection)
        read_gate = self._back_pressure.client_gate(self.transport)
        await read_loop(self._connection, self.flusher, read_gate)

    async def _write_client(self, connection: Connection) -> None:
        with trio.CancelScope() as self._writing:
            await write_loop(connection, self.flusher)

    # -- the end -----------------------------------------------------------------------------------

    def _finish(self, ending: Ending) -> None:
        if self._ending is None:
            self._ending = ending
            self._end.set()

    async def _shut_down(self) -> None:
        if self._detached is not None:
            self._detached.end(_CLIENT_GONE)
        assert self._ending is not None
        leaves_open = self._ending.reason == "failed" and not self.answers_loss
        with self._stopping:
            if self._ending.reason in ("client", "failed") and not leaves_open:
                await self._wait_answered()
            await end_components(list(self.components), self.stop_timeout)
        for component in self.components:
            component.kill()
        seconds = _FORCED_KILL_TIMEOUT if self._stopping.cancel_called else _KILL_TIMEOUT
        still_running = await wait_ended(list(self.components), seconds)
        if not leaves_open:
            self._answer_open_requests()
        self.flusher.flush()
        self._connection.close_writing()
        with trio.move_on_after(_FINAL_WRITE_TIMEOUT) as write_timeout:
            if self._stopping.cancel_called:
                write_timeout.cancel()
            while not self._connection.closed:
                await self.flusher.wait_room()
        if still_running:
            log.error("components did not end after SIGKILL", components=still_running)
            if self.on_still_running is not None:
                self.on_still_running(self._ending)

    async def _wait_answered(self) -> None:
        """Wait until the client's open requests are answered, at most `stop_timeout` seconds.

        After a component's failure too: its error is still passed on by the proxies before it.
        """
        with trio.move_on_after(self.stop_timeout):
            while self._connection.unanswered() and not self._connection.closed:
                if self.transport.peer_closed_read():
                    return
                with trio.move_on_after(_CLIENT_CHECK_INTERVAL):
                    await self.flusher.wait_flushed()

    def _answer_open_requests(self) -> None:
        """Answer the client's open requests with an error, after all components have ended."""
        ending = self._ending
        if ending is not None and ending.error is not None:
            ending.error.is_last = True
            failure = FailureErrors.of(ending.error)
        else:
            error = encode_error(INTERNAL_ERROR, "The chain ended before this was answered")
            failure = FailureErrors.plain(error)
        for call in self._connection.unanswered():
            self._connection.respond(call, None, failure.answer(call.method, delivered=True))


def _report(event: str, detail: str) -> None:
    log.warning(event, sender="client", detail=detail)


def _answered_with_error(component: Component) -> bool:
    """Whether a component itself answered its initialization with an error."""
    initialization = getattr(component, "initialization", None)
    return initialization is not None and initialization.refused


def _connect_past(component: Component) -> None:
    """Connect the neighbours of a proxy with each other."""
    assert component.agent_port is not None
    connect_ports(component.client_port.neighbour, component.agent_port.neighbour)
