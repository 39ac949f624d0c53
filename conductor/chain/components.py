"""The components of a chain: started and connected together, later inserted, bypassed or removed.

In: the components that `ChainSpec.make` returns, and what they report as to their
`ComponentHost`. Out: connected ports, notices to the user about restarts and bypasses, and
`on_failed` for a failure that only the chain can handle.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextvars import ContextVar
from functools import partial
from typing import TYPE_CHECKING, Final, Literal

import attrs
import trio

from conductor.chain.back_pressure import BackPressure
from conductor.chain.bridge_insertion import BridgeInsertion
from conductor.chain.client_end import ClientEnd
from conductor.chainfile.model import STOP_TIMEOUT
from conductor.errors import ComponentError, ConductorError, StartError, describe
from conductor.limits import Limits
from conductor.log import get_logger
from conductor.routing.component import Component, ComponentHost, RestartOutcome
from conductor.routing.failure_errors import FailureErrors
from conductor.routing.notices import Severity
from conductor.routing.port import Port, connect_ports
from conductor.secrets.masking import redact
from conductor.supervision.cancel_watch import CancelWatch
from conductor.tracing.recorder import TraceRecorder
from conductor.transport.io_loop import Flusher, ReadGate
from conductor.transport.spawn import end_prestarted

if TYPE_CHECKING:
    from conductor.plugins.plugin_component import PluginComponent

__all__ = ["ChainComponents", "ChainSpec", "client_params"]

client_params: Final[ContextVar[bytes | None]] = ContextVar("initialize params", default=None)
"""Raw `initialize` params of the client for which components are made, for conditions on them."""

log: Final = get_logger(component="conductor")


@attrs.frozen(eq=False)
class ChainSpec:
    """What a chain is made of: its components, and the settings for all of it.

    `make` builds the components, the one nearest the client first; it is called for every attempt
    to start, and may raise `ConductorError`. In "proxy" mode the client is a parent conductor,
    which is also the successor of the last component. `stop_timeout` is in seconds. `build.spec_of`
    is that of a chain file.
    """

    make: Callable[[], Sequence[Component]]
    mode: Literal["agent", "proxy"] = "agent"
    limits: Limits = attrs.field(factory=Limits)
    stop_timeout: float = STOP_TIMEOUT
    session_processes: int = 0
    """Further chains of this spec for one session each, that run at the same time; without any, all
    sessions are in one chain."""
    shares_processes: bool = False
    """Whether later sessions share a chain, instead of being refused."""
    make_bridge: Callable[[], PluginComponent] | None = None
    """Makes the MCP bridge, inserted before a parent conductor that takes no MCP over ACP."""
    announces_mcp_over_acp: bool = False
    """Whether the `initialize` result announces MCP servers over ACP even if the agent does not.
    The test kit sets it; otherwise the bridge announces what the agent supports."""
    is_supervised: bool = False
    """Whether it is a plugin that a parent conductor supervises: the parent answers what the loss
    of a component leaves open, and ends cancelled turns that hang."""


@attrs.define(eq=False, repr=False)
class ChainComponents(ComponentHost):
    """The components of one chain, the one nearest the client first in `running`.

    `on_failed` is called with each failure that neither a restart nor a bypass has handled, unless
    the component was inserted: then it is removed again.
    """

    spec: ChainSpec
    running: list[Component]
    """Components of the last start and inserted ones; other parts of the chain share this list."""
    client: ClientEnd
    back_pressure: BackPressure
    on_failed: Callable[[Component, ComponentError], None]
    recorder: TraceRecorder | None
    flusher: Flusher = attrs.field(init=False)
    limits: Limits = attrs.field(init=False)
    cancels: CancelWatch | None = attrs.field(default=None, init=False)
    nursery: trio.Nursery = attrs.field(init=False)
    """Runs the components."""
    plugin_nursery: trio.Nursery | None = attrs.field(default=None, init=False)
    """Runs the plugins, if not `None`; else `nursery` does."""
    tasks: dict[Component, trio.lowlevel.Task] = attrs.field(factory=dict, init=False)
    """The components that have not ended, also those of failed starts, and their tasks."""
    _inserted: set[Component] = attrs.field(factory=set, init=False)

    def __attrs_post_init__(self) -> None:
        self.flusher, self.limits = self.client.flusher, self.client.limits

    # -- starting ----------------------------------------------------------------------------------

    def prepare(self, initialize: bytes | None) -> None:
        """Make the components and begin to start all of them concurrently, without waiting.

        `initialize`: the client's raw params. If one component cannot start, those before it are
        killed, and its `ConductorError` is raised.
        """
        client_params.set(initialize or b"{}")
        started: list[Component] = []
        try:
            components = list(self.spec.make())
            for component in components:
                component.prepare(self)
                started.append(component)
        except ConductorError:
            for component in started:
                component.kill()
                self._run(component)
            raise
        finally:
            end_prestarted()
        self.running[:] = components
        if components and self.cancels is not None:
            self.cancels.timeout = components[-1].cancel_timeout

    def connect(self) -> Port:
        """Connect and run the prepared components; returns the first one's client port.

        The last component's successor is the client's enveloped port, if it has one ("proxy" mode);
        without components, that port is returned. Raises `StartError` if there is none.
        """
        ports = [component.client_port for component in self.running]
        for component, successor in zip(self.running, ports[1:], strict=False):
            assert component.agent_port is not None
            connect_ports(component.agent_port, successor)
        parent = self.client.link.enveloped
        if self.spec.make_bridge is not None:
            assert parent is not None
            insert = partial(self.insert, before=None)
            parent.insert(BridgeInsertion(self.client.link, self.spec.make_bridge, insert))
        last = self.running[-1].agent_port if self.running else None
        if parent is not None and last is not None:
            if self.recorder is not None:
                self.recorder.trace(parent, "successor", "client")
            connect_ports(last, parent)
        for component in self.running:
            self._run(component)
        if ports:
            return ports[0]
        if parent is None:
            raise StartError("conductor", "the chain has no agent")
        return parent

    def discard(self) -> None:
        """Kill the components of a failed start."""
        for component in self.running:
            component.kill()
        self.running.clear()
        self.flusher.made_room()

    def refusing(self) -> str | None:
        """The name of the last component that answered its initialization with an error."""
        return next((each.name for each in reversed(self.running) if _has_refused(each)), None)

    def _run(self, component: Component) -> None:
        in_other = component.kind == "plugin" and self.plugin_nursery is not None
        nursery = self.plugin_nursery if in_other else self.nursery
        assert nursery is not None
        nursery.start_soon(self._run_to_end, component)

    async def _run_to_end(self, component: Component) -> None:
        self.tasks[component] = trio.lowlevel.current_task()
        try:
            await component.run()
        except Exception as exc:
            if self.plugin_nursery is None or component.kind != "plugin":
                raise
            log.error("plugin crashed", plugin=component.name, error=describe(exc))
        finally:
            del self.tasks[component]

    # -- ComponentHost -----------------------------------------------------------------------------

    def read_gate(self, component: Component) -> ReadGate | None:
        return self.back_pressure.component_gate(component)

    def edge_read_gate(self) -> ReadGate:
        return self.back_pressure.edge_gate()

    def send_notice(
        self,
        session: str | None,
        title: str,
        detail: str | None = None,
        *,
        severity: Severity = "warning",
        once: str | None = None,
    ) -> None:
        self.client.send_notice(session, title, detail, severity=severity, once=once)

    def on_restarted(self, component: Component, restart: RestartOutcome) -> None:
        session_log = self.client.link.session_log
        cause = f" ({redact(restart.cause)})" if restart.cause else ""
        for session in self.client.sessions:
            title = f"{component.name} failed{cause}, was restarted"
            if component.agent_port is None and session in restart.lost_sessions:
                title += " and has lost this session"
                self.send_notice(session, title, "start a new one, or load it", severity="error")
                session_log.forget(session)
            elif session in restart.emptied_sessions:
                title += "; the conversation of this session may be lost"
                detail = "it was loaded without any history: ask the agent what it remembers"
                self.send_notice(session, title, detail)
            else:
                self.send_notice(session, title)

    def bypass(self, component: Component, error: ComponentError) -> None:
        _connect_past(component)
        log.lifecycle("component bypassed", component=component.name)
        title, _ = error.public_details()
        for session in self.client.sessions:
            self.send_notice(session, redact(title), "the chain goes on without it")

    def component_failed(self, component: Component, error: ComponentError) -> None:
        if component not in self.running:
            return  # it belongs to an abandoned attempt to start
        if component not in self._inserted:
            self.on_failed(component, error)
            return
        _connect_past(component)
        self._inserted.discard(component)
        self.running.remove(component)
        log.error(
            "the chain goes on without a component", error=str(error), **error.private_details()
        )

    def end_turns_behind(self, component: Component, error: ComponentError) -> None:
        """The chain ends because of this component: answer what the client waits for behind it.

        The next process has all that was sent past the failed component, also by plugins between.
        """
        error.is_last = True
        failure = FailureErrors.of(error)
        if component.agent_port is not None:
            _connect_past(component)
        for each in self.running[self.running.index(component) + 1 :]:
            each.fail_requests(failure)
            if each.kind != "plugin":
                break
        if self.client.link.enveloped is not None:  # the client is also the last one's successor
            self.client.link.fail_requests(failure)

    def insert(
        self, component: Component, *, before: Component | None, removable: bool = True
    ) -> None:
        """Insert a proxy into the running chain; requests in flight do not pass through it. `None`:
        before the parent conductor ("proxy" mode).

        If it fails later, it is removed again; one that is not `removable` ends the chain. Raises
        `StartError` from `prepare`, and then the chain is unchanged.
        """
        assert component.agent_port is not None
        component.prepare(self)
        if self.recorder is not None:
            component.trace(self.recorder)
        successor = self.client.link.enveloped if before is None else before.client_port
        assert successor is not None
        index = len(self.running) if before is None else self.running.index(before)
        self.running.insert(index, component)
        if removable:
            self._inserted.add(component)
        connect_ports(successor.neighbour, component.client_port)
        connect_ports(component.agent_port, successor)
        self._run(component)


def _has_refused(component: Component) -> bool:
    """Whether a component itself answered its initialization with an error."""
    initialization = getattr(component, "initialization", None)
    return initialization is not None and initialization.refused


def _connect_past(component: Component) -> None:
    """Connect the neighbours of a proxy with each other."""
    assert component.agent_port is not None
    connect_ports(component.client_port.neighbour, component.agent_port.neighbour)
