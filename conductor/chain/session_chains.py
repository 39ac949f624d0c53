"""The further chains of one client, for sessions that do not belong into the first one.

A session set-up goes to the chain that its directory has now (`projects.chooser`): to the first
chain, to one that runs already, or to a new one. Sessions that are open keep theirs. A chain ends
after its last session. The agent of each is a process of its own.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import attrs
import trio

from conductor.acp import session_id_of
from conductor.chain.client_end import ClientEnd
from conductor.chain.further import FurtherChains
from conductor.chain.further_chain import FurtherChain
from conductor.chain.response_watch import ResponseWatch
from conductor.chain.session_router import SessionRouter
from conductor.chain.start_failure import FailureContext
from conductor.chain.startup_gate import StartupGate
from conductor.errors import RequestError
from conductor.jsonrpc.in_flight import InFlightRequest
from conductor.jsonrpc.messages import INVALID_REQUEST, Payload
from conductor.log import get_logger
from conductor.projects.chooser import ChainChooser
from conductor.projects.planner import ChainPlan
from conductor.supervision.cancel_timeouts import CancelOverdue, TurnOverdue
from conductor.tracing.recorder import TraceRecorder
from conductor.transport.io_loop import Flusher, ReadGate

__all__ = ["MAX_CHAINS", "SessionChains"]

MAX_CHAINS: Final = 16
"""Further chains of one client that run at the same time; each has its own processes."""

log: Final = get_logger(component="conductor")


@attrs.define(eq=False, repr=False)
class SessionChains(FurtherChains):
    """The further chains of one client."""

    chooser: ChainChooser
    client: ClientEnd
    gate: StartupGate
    flusher: Flusher
    read_gate: Callable[[], ReadGate]
    nursery: trio.Nursery
    recorder: TraceRecorder | None = None
    plugin_nursery: trio.Nursery | None = None
    failure_context: FailureContext | None = None
    running: list[FurtherChain] = attrs.field(factory=list, init=False)
    _router: SessionRouter | None = attrs.field(default=None, init=False)

    def open(
        self, plan: ChainPlan, call: InFlightRequest, method: str, params: Payload | None
    ) -> bool:
        """Set up a session in the chain of a plan, and start it if it does not run; false if that
        is the first chain. Raises `RequestError`."""
        if self.chooser.is_first(plan):
            if self._router is not None and (session := session_id_of(params)) is not None:
                self._router.forget(session)
            self._tell(plan, call, params)
            return False
        chain = self._chain_for(plan)
        self._tell(plan, call, params)
        chain.branch.open(call, method, params)
        return True

    def _tell(self, plan: ChainPlan, call: InFlightRequest, params: Payload | None) -> None:
        """Show the user the notices of a plan, after the response to this session set-up."""

        def show(result: Payload | None, _: Payload | None) -> None:
            session = session_id_of(result) or session_id_of(params)
            if result is not None and session is not None:
                for notice in plan.notices:
                    self.client.send_notice(session, notice.title, notice.detail)

        if plan.notices:
            ResponseWatch(call, after=show)

    def has_overdue(self, overdue: CancelOverdue) -> bool:
        """Whether a further chain has this cancelled turn or request."""
        if isinstance(overdue, TurnOverdue):
            return overdue.session in self.client.elsewhere
        return any(overdue.call.target is chain.link.plain for chain in self.running)

    @property
    def backlog(self) -> int:
        """Bytes that the slowest of them has not read."""
        return max((chain.link.backlog() for chain in self.running), default=0)

    def _chain_for(self, plan: ChainPlan) -> FurtherChain:
        for chain in self.running:
            if not chain.is_closing and plan.is_same(chain.plan):
                return chain
        if not self.gate.is_out_of_the_way:
            problem = "the first chain is starting again; try again when it has a session"
            raise RequestError(INVALID_REQUEST, "Not initialized", problem)
        if len(self.running) >= MAX_CHAINS:
            problem = f"more than {MAX_CHAINS} chains of other projects or versions; close sessions"
            raise RequestError(INVALID_REQUEST, "Too many chains", problem)
        return self._start(plan)

    def _start(self, plan: ChainPlan) -> FurtherChain:
        if self._router is None:
            self._router = SessionRouter(
                self.client.port,
                self.client.link.plain,
                _report_foreign,
                self.client.link.session_log.sessions,
            )
            self.client.elsewhere = self._router.sessions.keys()
        chain = FurtherChain(
            plan,
            self._router,
            self.flusher,
            self.read_gate(),
            self.gate.version,
            self._on_ended,
            None if self.recorder is None else self.recorder.for_chain(plan.chain.name),
            self.plugin_nursery,
            self.failure_context,
        )
        self.running.append(chain)
        self._router.branches.append(chain.branch)
        log.lifecycle("further chain starts", components=[each.name for each in plan.chain.flat()])
        for name, condition in plan.left_out.items():
            log.lifecycle("component left out", name=name, when=condition)
        self.nursery.start_soon(chain.run)
        chain.initialize(self.gate.params)
        return chain

    def _on_ended(self, chain: FurtherChain) -> None:
        assert self._router is not None
        self.running.remove(chain)
        for session in chain.branch.sessions:
            self.client.link.session_log.forget(session)
        self._router.remove(chain.branch)

    # -- the end -----------------------------------------------------------------------------------

    def close_inputs(self, *, at_once: bool) -> None:
        """End all in order; `at_once`: without waiting for open requests."""
        for chain in self.running:
            if at_once:
                chain.stop()
            else:
                chain.close()

    def kill(self) -> None:
        for chain in self.running:
            chain.kill()

    async def wait_ended(self) -> None:
        for chain in list(self.running):
            await chain.ended.wait()


def _report_foreign(sender: str, names: dict[str, object]) -> None:
    log.warning("message for what belongs to another chain", sender=sender, **names)
