"""Choice of the chain of each session of a client: the first chain, or a further one.

In: each set-up of a session, as a stage at the client's port or from the startup gate. Out: false
for the first chain; else the set-up is passed on to the further chains (`session_chains`), which
are made when the first of them is needed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from conductor.acp import SESSION_SETUP_METHODS, session_id_of
from conductor.chain.client_end import ClientEnd
from conductor.chain.startup_gate import StartupGate
from conductor.errors import ChainFileError, ConductorError
from conductor.jsonrpc.in_flight import InFlightRequest
from conductor.jsonrpc.messages import Payload, exception_to_error
from conductor.projects.chooser import ChainChooser
from conductor.projects.planner import ChainPlan
from conductor.routing.stage import ForwardRequest, Stage
from conductor.supervision.cancel_timeouts import CancelOverdue

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

    def has_overdue(self, overdue: CancelOverdue) -> bool:
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

    __slots__ = ("_client", "_explains", "_gate", "_open_further", "chooser", "make_further")

    name = "chain choice"
    received: frozenset[str] = SESSION_SETUP_METHODS

    def __init__(self, chooser: ChainChooser, make_further: Callable[[Any], FurtherChains]) -> None:
        self.chooser: ChainChooser = chooser
        self.make_further: Callable[[Any], FurtherChains] = make_further

    def join(
        self,
        client: ClientEnd,
        gate: StartupGate,
        further: Callable[[], FurtherChains],
        *,
        explains: bool,
    ) -> None:
        """Choose for this client from now on; `further` returns its further chains. `explains`:
        whether a chain with mistakes in its file explains them in the chat."""
        self._client, self._gate = client, gate
        self._open_further, self._explains = further, explains
        gate.choose_chain = self.choose
        client.link.plain.insert(self)

    def begin(self) -> None:
        """The first chain is about to start."""
        self.chooser.begin(self._gate.params, self._gate.setup_params)

    def choose(self, call: InFlightRequest, method: str, params: Payload | None) -> bool:
        """Set up a session in the chain of its directory; false if that is the first chain."""
        if method not in SESSION_SETUP_METHODS or self._gate.state != "open":
            return False
        session = session_id_of(params)
        if session is not None and session in self._client.link.session_log.sessions:
            return False
        try:
            try:
                plan = self.chooser.choose(params)
            except ChainFileError as mistakes:
                if not self._explains:
                    raise
                plan = self.chooser.explaining(mistakes)
            if plan is None:
                return False
            return self._open_further().open(plan, call, method, params)
        except ConductorError as exc:
            call.source.respond(call, None, exception_to_error(exc))
            return True

    def receive_request(
        self, forward: ForwardRequest, call: InFlightRequest, method: str, params: Payload | None
    ) -> None:
        if not self.choose(call, method, params):
            forward(call, method, params)
