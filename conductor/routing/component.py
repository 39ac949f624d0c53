"""What every component of a chain has in common, and what it may ask of its chain."""

from __future__ import annotations

from typing import Literal, Protocol

from conductor.chainfile.model import CANCEL_TIMEOUT
from conductor.errors import ComponentError
from conductor.limits import Limits
from conductor.routing.notices import Severity
from conductor.routing.port import Port
from conductor.transport.io_loop import Flusher, ReadGate

__all__ = ["Component", "ComponentHost"]


class ComponentHost(Protocol):
    """The chain, as its components see it."""

    flusher: Flusher
    limits: Limits

    def read_gate(self, component: Component) -> ReadGate | None:
        """The gate that a component's reader obeys: an edge's, or for a proxy one far off."""

    def edge_read_gate(self) -> ReadGate:
        """The gate that every other source of messages toward the client obeys."""

    def insert(self, component: Component, *, before: Component) -> None:
        """Put a proxy into the running chain."""

    def send_notice(
        self,
        session: str,
        title: str,
        detail: str | None = None,
        *,
        severity: Severity = "warning",
    ) -> None:
        """Send the person at the client a notice in this session (`routing.notices`)."""

    def stuck(
        self, watcher: Component, cancelled: tuple[Literal["turn", "request"], str]
    ) -> tuple[Component | None, bool]:
        """See `supervision.cancel_arbiter.Arbiter`."""

    def on_restarted(self, component: Component, lost_sessions: list[str]) -> None:
        """A component was started again; these sessions could not be restored."""

    def bypass(self, component: Component, error: ComponentError) -> None:
        """A proxy failed for good: the chain goes on without it."""

    def component_failed(self, component: Component, error: ComponentError) -> None:
        """A component could not start, or ended although nobody asked it to."""


class Component(Protocol):
    """A proxy or the agent: two ports (an agent has one), and a life."""

    @property
    def name(self) -> str: ...

    @property
    def client_port(self) -> Port: ...

    @property
    def agent_port(self) -> Port | None: ...

    @property
    def stop_timeout(self) -> float:
        """Seconds from `close_input` to `terminate`, and from that to `kill`."""
        return 5.0

    @property
    def cancel_timeout(self) -> float:
        """Of an agent: seconds that a turn has to end after its cancellation."""
        return CANCEL_TIMEOUT

    @property
    def watches_turns(self) -> bool:
        """Whether it ends by itself what was cancelled and is not answered."""
        return False

    def set_cancel_timeout(self, seconds: float) -> None:
        """Told before it runs: what the chain's agent has."""
        return

    def holds_up_turn(self, session: str) -> bool:
        """Whether a turn of this session was cancelled, and goes on here for all it knows."""
        return False

    def holds_up_request(self, method: str) -> bool:
        """The same of a request of this method that was withdrawn."""
        return False

    def end_turn(self, session: str, *, version_2: bool) -> bool:
        """Answer the prompts of a turn that it holds up; false if it has none to answer."""
        return False

    def prepare(self, host: ComponentHost) -> None:
        """Begin to start, without waiting. Raises `StartError` if that is hopeless."""

    async def run(self) -> None:
        """Live: returns when the component has ended and nothing of it is left."""

    def close_input(self) -> None:
        """There is nothing more to come: the component should finish and end."""

    async def wait_drained(self) -> None:
        """Return when, after `close_input`, the component has sent all that it will send."""

    def terminate(self) -> None:
        """Ask it to end at once (SIGTERM)."""

    def kill(self) -> None:
        """End it (SIGKILL)."""

    def backlog(self) -> int:
        """Bytes that wait for it."""

    async def wait_ended(self) -> None:
        """Return when `run` is done."""
