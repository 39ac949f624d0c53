"""Choice of the chain of each session of a client: the first chain, or a further one.

In: each set-up of a session, as a stage at the client's port behind the startup gate. Those that
are not for the first chain are passed on to the further chains (`session_chains`), which are made
when the first of them is needed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from conductor.acp import SESSION_SETUP_METHODS, session_id_of
from conductor.chain.startup_gate import StartupGate
from conductor.errors import ChainFileError, ConductorError
from conductor.jsonrpc.in_flight import InFlightRequest
from conductor.jsonrpc.messages import Payload, exception_to_error
from conductor.projects.chooser import ChainChooser
from conductor.projects.planner import ChainPlan
from conductor.routing.component import Cancelled
from conductor.routing.link import Link
from conductor.routing.stage import ForwardRequest, Stage

__all__ = ["ChainChoice", "FurtherChains"]


class FurtherChains(Protocol):
    """The chains of one client besides the first one."""

    @property
    def backlog(self) -> int:
        """Bytes that the slowest of them has not read."""

    def open(
        self, plan: ChainPlan, call: InFlightRequest, method: str, params: Payload | None
    ) -> bool:
        """Set up a session in the chain of a plan, and start it if it does not run; false if that
        is the first chain. Raises `RequestError`."""

    def has(self, cancelled: Cancelled) -> bool:
        """Whether a further chain has this cancelled turn or request."""

    def close_inputs(self, *, at_once: bool) -> None:
        """End all in order; `at_once`: without waiting for open requests."""

    def kill(self) -> None:
        """End all now."""

    async def wait_ended(self) -> None:
        """Return when all have ended."""


class ChainChoice(Stage):
    """Chooses with `chooser`; `make_further(first_chain)` makes a `session_chains.SessionChains`.
    The components of the first chain are those of `chooser.first()`."""

    __slots__ = ("_explains", "_link", "_open_further", "chooser", "make_further")

    name = "chain choice"
    received: frozenset[str] = SESSION_SETUP_METHODS

    def __init__(self, chooser: ChainChooser, make_further: Callable[[Any], FurtherChains]) -> None:
        self.chooser: ChainChooser = chooser
        self.make_further: Callable[[Any], FurtherChains] = make_further

    def join(self, client: Link, further: Callable[[], FurtherChains], *, explains: bool) -> None:
        """Choose for this client from now on; `further` returns its further chains. `explains`:
        whether a chain with mistakes in its file explains them in the chat."""
        self._link, self._open_further, self._explains = client, further, explains
        client.plain.insert(self)

    def begin(self, gate: StartupGate) -> None:
        """The first chain is about to start."""
        self.chooser.begin(gate.params, gate.setup_params)

    def receive_request(
        self, forward: ForwardRequest, call: InFlightRequest, method: str, params: Payload | None
    ) -> None:
        try:
            is_elsewhere = self._opens_further(call, method, params)
        except ConductorError as exc:
            self.port.respond(call, None, exception_to_error(exc))
        else:
            if not is_elsewhere:
                forward(call, method, params)

    def _opens_further(self, call: InFlightRequest, method: str, params: Payload | None) -> bool:
        """Whether a session is set up in another chain than the first one. Raises
        `ConductorError`."""
        session = session_id_of(params)
        if session is not None and session in self._link.session_log.sessions:
            return False
        try:
            plan = self.chooser.choose(params)
        except ChainFileError as mistakes:
            if not self._explains:
                raise
            plan = self.chooser.explaining(mistakes)
        return plan is not None and self._open_further().open(plan, call, method, params)
