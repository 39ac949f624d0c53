"""Interfaces between a chain and its components: `Component` and `ComponentHost`."""

from __future__ import annotations

from abc import abstractmethod
from typing import Literal, Protocol, TypeAlias

import msgspec

from conductor.acp.turns import Turns
from conductor.chainfile.model import CANCEL_TIMEOUT, OnCancelTimeout
from conductor.errors import ComponentError
from conductor.jsonrpc.in_flight import InFlightRequest
from conductor.jsonrpc.messages import RawMember
from conductor.limits import Limits
from conductor.routing.failure_errors import FailureErrors
from conductor.routing.link import Link
from conductor.routing.notices import Severity
from conductor.routing.port import Port
from conductor.routing.trace import Tracer
from conductor.transport.io_loop import Flusher, ReadGate

__all__ = [
    "Blocker",
    "CancelReports",
    "Cancelled",
    "Component",
    "ComponentHost",
    "Hop",
    "RestartOutcome",
]

Cancelled: TypeAlias = str | InFlightRequest
"""A cancelled turn, named by its session, or a cancelled request."""


class RestartOutcome(msgspec.Struct, frozen=True):
    """Outcome of the restart of a component."""

    lost_sessions: list[str] = []
    """Sessions that could not be replayed."""
    emptied_sessions: list[str] = []
    """Sessions with a conversation that an agent has loaded without any history."""
    has_lost_login: bool = False
    """Whether an agent has lost sessions because it requires a login again."""
    cause: str = ""
    """The failure before it, in the component's own words (stderr); empty if it had none."""


class CancelReports(Protocol):
    """Takes what is cancelled at any place of a chain (`supervision.cancel_watch`)."""

    def cancelled(self, what: Cancelled) -> None:
        """A turn or a request was cancelled at a component, and continues there."""

    def answered(self, call: InFlightRequest) -> None:
        """A cancelled request was answered."""


class Hop(Protocol):
    """A link whose turns are followed: that of a component, with what it was sent, or that of the
    client, with what it has sent."""

    @property
    def link(self) -> Link: ...

    @property
    def turns(self) -> Turns[InFlightRequest]: ...


class Blocker(Protocol):
    """What one component has of cancelled turns and requests (`supervision.cancel_watch`)."""

    @property
    def hop(self) -> Hop | None:
        """Its link, if its turns are followed."""
        return None

    @property
    def on_cancel_timeout(self) -> OnCancelTimeout:
        """What `end_turn` does besides ending the turn."""
        return "answer"

    def why_stopped(self) -> str | None:
        """Clause that says that a process of it is stopped, by a signal; `None` if none is."""
        return None

    @abstractmethod
    def cancelled_since(self, session: str) -> float | None:
        """When a turn was cancelled that it blocks; `None` if it blocks none, inf if it is not to
        be ended yet, -inf for the time at which it was cancelled before this component."""

    @abstractmethod
    def end_turn(self, session: str, until: float, problem: str, *, version_2: bool) -> bool:
        """End what was cancelled until this time; false if it has no prompt of it. `problem` is
        the reason, as the rest of a sentence."""

    @abstractmethod
    def requests(self) -> list[InFlightRequest]:
        """Cancelled requests that it was sent, and that do not wait for another one here."""

    @abstractmethod
    def end_request(self, call: InFlightRequest, result: RawMember, error: RawMember) -> None:
        """Answer one of them in its place."""


class ComponentHost(Protocol):
    """The chain, as its components see it: gates, notices, and reports of failures."""

    flusher: Flusher
    limits: Limits

    @property
    def cancels(self) -> CancelReports | None:
        """`None` if a parent conductor ends what hangs."""

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

    def busy_handler(self) -> dict[str, str]:
        """Log fields for a handler of a plugin that runs and does not wait for a response:
        `handler` (its place in the file) and `method`."""
        return {}

    # -- cancelled turns ---------------------------------------------------------------------------

    @property
    def cancel_timeout(self) -> float:
        """Seconds within which a turn must end after its cancellation; of the agent."""
        return CANCEL_TIMEOUT

    @property
    def blocker(self) -> Blocker | None:
        """What it has of cancelled turns and requests; `None` if that is not followed."""
        return None
