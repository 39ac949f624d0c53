"""Interfaces between a chain and its components: `Component` and `ComponentHost`."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Collection
from typing import Literal, Protocol

import msgspec

from conductor.chainfile.model import CANCEL_TIMEOUT
from conductor.errors import ComponentError
from conductor.limits import Limits
from conductor.routing.failure_errors import FailureErrors
from conductor.routing.notices import Severity
from conductor.routing.port import Port
from conductor.routing.trace import Tracer
from conductor.transport.io_loop import Flusher, ReadGate

__all__ = ["Component", "ComponentHost", "RestartOutcome"]


class RestartOutcome(msgspec.Struct, frozen=True):
    """Outcome of the restart of a component."""

    lost_sessions: list[str] = []
    """Sessions that could not be replayed."""
    emptied_sessions: list[str] = []
    """Sessions with a conversation that an agent has loaded without any history."""
    has_lost_login: bool = False
    """Whether an agent has lost sessions because it requires a login again."""
    login_is_stale: bool = False
    """Whether the client has logged in at an agent's process before this one, and not at this one:
    it may require a login again."""
    cause: str = ""
    """The failure before it, in the component's own words (stderr); empty if it had none."""


class ComponentHost(Protocol):
    """The chain, as its components see it: gates, notices, and reports of failures."""

    flusher: Flusher
    limits: Limits

    def read_gate(self, component: Component) -> ReadGate | None:
        """The back-pressure gate of a component's reader; see `chain.back_pressure`."""

    def edge_read_gate(self) -> ReadGate:
        """The back-pressure gate of any other source of messages toward the client."""

    def insert(
        self, component: Component, *, before: Component | None, removable: bool = True
    ) -> None:
        """Insert a proxy into the running chain; see `chain.components`."""

    def send_notice(
        self,
        session: str | None,
        title: str,
        detail: str | None = None,
        *,
        severity: Severity = "warning",
        once: str | None = None,
    ) -> None:
        """Show the user a notice in this session (`routing.notices`).

        `None`, or a session that the client has not opened: in those with a running turn, else in
        all; without any, with the next prompt. `once` names what it is about: there is one notice
        per turn of it.
        """

    def blocking_component(
        self, watcher: Component, cancelled: tuple[Literal["turn", "request"], str]
    ) -> tuple[Component | None, bool]:
        """Find the component that blocks a cancelled turn (session id) or request (method).

        Returns the component, and whether `watcher` has to end the turn or answer the request;
        see `supervision.cancel_arbiter.CancelArbiter`.
        """

    def on_restarted(self, component: Component, restart: RestartOutcome) -> None:
        """A component was restarted."""

    def bypass(self, component: Component, error: ComponentError) -> None:
        """A proxy failed and is not restarted: continue without it."""

    def component_failed(self, component: Component, error: ComponentError) -> None:
        """A component could not start, or ended without being stopped."""


class Component(Protocol):
    """A proxy or the agent: its ports (two; an agent has one) and its lifecycle.

    Lifecycle: `prepare`, `run`, then `close_input`, `terminate`, `kill` as far as needed.
    """

    @property
    @abstractmethod
    def name(self) -> str: ...

    @property
    @abstractmethod
    def client_port(self) -> Port: ...

    @property
    @abstractmethod
    def agent_port(self) -> Port | None: ...

    @property
    @abstractmethod
    def stop_timeout(self) -> float:
        """Seconds from `close_input` to `terminate`, and from that to `kill`."""

    @property
    def kind(self) -> Literal["plugin", "process", "remote"]:
        """In this process (`plugin`), in its own, or on another machine."""
        return "process"

    @property
    def has_handlers(self) -> bool:
        """Whether handlers that run for its messages are in a trace."""
        return self.kind == "plugin"

    @property
    def records_causes(self) -> bool:
        """Whether a trace has the links between what it receives and sends."""
        return self.kind == "plugin"

    @property
    def place(self) -> str | None:
        """Its place in the chain file, as `path:line:column`."""
        return None

    def trace(self, tracer: Tracer) -> None:
        """Show this tracer what the component gets; called before its ports are connected."""
        return

    @abstractmethod
    def prepare(self, host: ComponentHost) -> None:
        """Begin to start, without waiting. Raises `StartError` if it cannot start."""

    @abstractmethod
    async def run(self) -> None:
        """Run the component; returns when it has ended and its resources are released."""

    @abstractmethod
    def close_input(self) -> None:
        """Signal EOF: the component should finish its work and end."""

    @abstractmethod
    async def wait_drained(self) -> None:
        """Return when, after `close_input`, the component has sent its last message."""

    @abstractmethod
    def terminate(self) -> None:
        """Ask the component to end now (SIGTERM)."""

    @abstractmethod
    def kill(self) -> None:
        """End the component (SIGKILL)."""

    @abstractmethod
    async def wait_ended(self) -> None:
        """Return when `run` has returned."""

    @abstractmethod
    def backlog(self) -> int:
        """Bytes that wait to be read by the component."""

    def fail_requests(self, failure: FailureErrors) -> None:
        """Answer the requests and end the turns that it has, in its place: the chain ends because
        of a failure of another component."""
        return

    def busy_calls(self) -> Collection[object]:
        """Calls of handlers that run and do not wait for a response; of a plugin."""
        return ()

    def busy_handler(self) -> dict[str, str]:
        """Log fields for one of these: `handler` (its place in the file) and `method`."""
        return {}

    # -- cancelled turns; a component without these never blocks one -------------------------------

    @property
    def cancel_timeout(self) -> float:
        """Seconds within which a turn must end after its cancellation; of the agent."""
        return CANCEL_TIMEOUT

    @property
    def enforces_cancel_timeout(self) -> bool:
        """Whether the component itself enforces `cancel_timeout`."""
        return False

    def set_cancel_timeout(self, seconds: float) -> None:
        """Set the agent's `cancel_timeout`, before `run`."""
        return

    def blocks_turn(self, session: str) -> bool:
        """Whether a cancelled turn of this session still runs in this component."""
        return False

    def blocks_request(self, method: str | None) -> bool:
        """Whether a cancelled request of this method (`None`: any) is still unanswered in this
        component."""
        return False

    def end_turn(self, session: str, *, version_2: bool) -> bool:
        """Answer the prompts of a turn that it blocks; false if it has no such prompt."""
        return False
