"""The chains of one client's sessions: the first one, and further ones as they are needed.

A session set-up goes to the chain that its directory has now (`chooser`): to the first
chain, to one that runs already, or to a new one. With `session_processes`, a chain has one session
at a time, so that the agent has a process for each. Sessions that are open keep their chain. A
chain ends after its last session. `routing.session_branches` has the way of each message.

A `FurtherChain` is a `Chain` with everything that belongs to one, connected by a pair of memory
transports to a link, behind which it looks like an agent. It gets the client's `initialize`;
session set-ups wait in the link's queue until it has answered.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Protocol

import attrs
import trio

from conductor.acp import session_id_of
from conductor.chain.back_pressure import BackPressure
from conductor.chain.client_end import ClientEnd
from conductor.chain.components import ChainSpec
from conductor.chain.startup_gate import StartupGate
from conductor.errors import ChainFileError, RequestError, StartError
from conductor.jsonrpc.connection import Connection
from conductor.jsonrpc.in_flight import InFlightRequest
from conductor.jsonrpc.json_object import with_member
from conductor.jsonrpc.messages import (
    INTERNAL_ERROR,
    INVALID_PARAMS,
    INVALID_REQUEST,
    Payload,
    encode_error,
    exception_to_error,
)
from conductor.jsonrpc.notification_batch import SESSION_UPDATE
from conductor.log import get_logger
from conductor.routing.capabilities import protocol_version, with_session_close
from conductor.routing.component import Cancelled
from conductor.routing.failure_errors import FailureErrors
from conductor.routing.link import Link
from conductor.routing.session_branches import Branch, OwnRequest, ResponseWatch, SessionBranches
from conductor.transport.base import Transport
from conductor.transport.io_loop import read_loop, write_loop
from conductor.transport.memory import MemoryTransport, memory_pair

if TYPE_CHECKING:
    from conductor.chain.chooser import ChainChooser, ChainPlan

__all__ = ["MAX_CHAINS", "ChainChoice", "SessionChains"]

MAX_CHAINS: Final = 16
"""Further chains of one client that run at the same time; each has its own processes."""
_ENDED: Final = encode_error(
    INTERNAL_ERROR, "The chain of this session has ended; start a new session, or load it"
)

log: Final = get_logger(component="conductor")


@attrs.frozen(eq=False)
class ChainChoice:
    """Chooses the chain of each session; the components of the first chain are those of
    `chooser.first()`. `spec_of` is `build.spec_of_plan`."""

    chooser: ChainChooser
    spec_of: Callable[[ChainPlan], ChainSpec]


class _Chain(Protocol):
    async def run(self) -> Any: ...

    def stop(self) -> None: ...

    def kill(self) -> None: ...


@attrs.define(eq=False, repr=False)
class SessionChains:
    """The further chains of one client; `first` is the spec of its first one.

    `make` returns a chain of a spec and a name, for another transport. `explains`: whether a chain
    with mistakes in its file explains them in the chat.
    """

    client: ClientEnd
    gate: StartupGate
    back_pressure: BackPressure
    first: ChainSpec
    choice: ChainChoice | None
    make: Callable[[Transport, ChainSpec, str], _Chain]
    explains: bool
    nursery: trio.Nursery = attrs.field(init=False)
    """Runs the chains."""
    running: list[FurtherChain] = attrs.field(factory=list, init=False)
    branches: SessionBranches = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self.branches = SessionBranches(
            self._choose,
            _report_foreign,
            self.client.link.session_log.sessions,
        )
        self.client.link.plain.insert(self.branches)
        self.client.elsewhere = self.branches.sessions.keys()
        self.back_pressure.further_backlog = self._backlog

    def begin(self) -> None:
        """The first chain is about to start."""
        if self.choice is not None:
            self.choice.chooser.begin(self.gate.params, self.gate.setup_params)

    def with_session_close(self, result: bytes) -> bytes:
        """The raw `initialize` result of the first chain for the client: without `session/close`, a
        client could not end a process of one session."""
        announced = with_session_close(result) if self._first_processes() else result
        self.branches.closes_sessions = announced != result
        return announced

    def has(self, cancelled: Cancelled) -> bool:
        """Whether a further chain has this cancelled turn or request."""
        if isinstance(cancelled, str):
            return cancelled in self.branches.sessions
        return any(cancelled.target is chain.link.plain for chain in self.running)

    # -- which chain -------------------------------------------------------------------------------

    def _choose(self, call: InFlightRequest, method: str, params: Payload | None) -> Branch | None:
        """The chain for a session set-up; `None` for the first one. Raises `ConductorError`."""
        session = session_id_of(params) or ""
        owner = self.branches.sessions.get(session)
        is_open = session in self.client.link.session_log.sessions
        if (is_open if owner is None else not owner.is_closing) and not (
            method == "session/fork" and self._processes_of(owner)
        ):
            return owner
        plan, chooser = self._plan(params), None if self.choice is None else self.choice.chooser
        is_first = plan is None or chooser is None or chooser.is_first(plan)
        processes = self._first_processes() if plan is None else plan.chain.session_processes
        branch = None
        if not is_first or (processes and self._first_is_taken()):
            if plan is None and chooser is not None:
                plan = chooser.first_plan
            branch = self._branch_of(plan, processes, is_first=is_first)
        if plan is not None and plan.notices:
            ResponseWatch(call, partial(self._tell, plan, session_id_of(params)))
        return branch

    def _plan(self, params: Payload | None) -> ChainPlan | None:
        if self.choice is None:
            return None
        try:
            return self.choice.chooser.choose(params)
        except ChainFileError as mistakes:
            if not self.explains:
                raise
            return self.choice.chooser.explaining(mistakes)

    def _processes_of(self, owner: Branch | None) -> int:
        return next(
            (each.processes for each in self.running if each.branch is owner),
            self._first_processes(),
        )

    def _first_processes(self) -> int:
        if self.choice is None:
            return self.first.session_processes
        return self.choice.chooser.first_chain.session_processes

    def _first_is_taken(self) -> bool:
        """Whether the agent of the first chain has a session."""
        branches, is_starting = self.branches, self.gate.setup_params is not None
        has_session = is_starting or branches.first_is_opening or bool(self.client.sessions)
        return has_session or branches.is_first_spent

    def _branch_of(
        self, plan: ChainPlan | None, processes: int, *, is_first: bool
    ) -> Branch | None:
        """The chain of a plan, one that runs if it may have several sessions; `None` for the first
        one, which is of this plan too if `is_first`. Raises `RequestError`."""
        open_chains = [chain for chain in self.running if not chain.branch.is_closing]
        is_full = processes and sum(bool(each.processes) for each in open_chains) >= processes
        shares = self.first.shares_processes if plan is None else plan.chain.shares_processes
        if is_full and not shares:
            problem = f"{processes} processes of the agent run beside the first (session_processes)"
            raise RequestError(INVALID_REQUEST, f"{problem}; close a session")
        if is_full and is_first:
            return None
        for chain in open_chains if is_full or not processes else ():
            if plan is not None and chain.plan is not None and plan.is_same(chain.plan):
                return chain.branch
        if len(self.running) >= MAX_CHAINS:
            problem = f"more than {MAX_CHAINS} chains of other projects or versions; close sessions"
            raise RequestError(INVALID_REQUEST, "Too many chains", problem)
        return self._start(plan, processes)

    def _start(self, plan: ChainPlan | None, processes: int) -> Branch:
        spec, name = self.first, "session"
        if plan is not None:
            assert self.choice is not None
            spec, name = self.choice.spec_of(plan), plan.chain.name
            for left_out, condition in plan.left_out.items():
                log.lifecycle("component left out", name=left_out, when=condition)
        log.lifecycle("further chain starts", chain=name)
        chain = FurtherChain(self, spec, name, plan, processes)
        self.running.append(chain)
        self.nursery.start_soon(chain.run)
        chain.initialize(self.gate.params)
        return chain.branch

    def _tell(
        self, plan: ChainPlan, session: str | None, result: Payload | None, _: Payload | None
    ) -> None:
        """Show the user the notices of a plan, after the response to a session set-up."""
        session = session_id_of(result) or session
        if result is not None and session is not None:
            for notice in plan.notices:
                if session not in self.branches.sessions:
                    self.client.send_notice(session, notice.title, notice.detail)
                    continue
                notices = self.client.notices
                params = notices.params(session, notice.title, notice.detail, "warning")
                self.branches.port.send(self.branches, None, SESSION_UPDATE, params)

    def _backlog(self) -> int:
        """Bytes that the slowest of them has not read."""
        return max((chain.link.backlog() for chain in self.running), default=0)

    # -- the end -----------------------------------------------------------------------------------

    def on_ended(self, chain: FurtherChain) -> None:
        """A chain has ended, and its open requests are answered."""
        self.running.remove(chain)
        for session in chain.branch.sessions:
            self.client.link.session_log.forget(session)
        self.branches.remove(chain.branch)

    def close_inputs(self, *, at_once: bool) -> None:
        """End all in order; `at_once`: without waiting for open requests."""
        for chain in self.running:
            if at_once:
                chain.stop()
            else:
                chain.close()

    def kill(self) -> None:
        for chain in self.running:
            chain.chain.kill()

    async def wait_ended(self) -> None:
        for chain in list(self.running):
            await chain.ended.wait()


@attrs.define(eq=False, repr=False)
class FurtherChain:
    """One further chain, with one session at a time if it is one of several `processes`."""

    chains: SessionChains
    spec: ChainSpec
    name: str
    plan: ChainPlan | None
    processes: int
    chain: _Chain = attrs.field(init=False)
    link: Link = attrs.field(init=False)
    branch: Branch = attrs.field(init=False)
    version: int = attrs.field(init=False)
    """The protocol version that the client knows."""
    ended: trio.Event = attrs.field(factory=trio.Event, init=False)
    _theirs: MemoryTransport = attrs.field(init=False)
    _connection: Connection = attrs.field(init=False)
    _read_to_end: trio.Event = attrs.field(factory=trio.Event, init=False)

    def __attrs_post_init__(self) -> None:
        self.version = self.chains.gate.version
        ours, self._theirs = memory_pair()
        self.chain = self.chains.make(self._theirs, self.spec, self.name)
        self.link = Link(self.name, "agent", _report)
        self.link.session_log.limits = limits = self.spec.limits
        self._connection = Connection(ours, self.link, self.chains.client.flusher, limits=limits)
        self.link.connect(self._connection)
        self.branch = Branch(self.chains.branches, self.link, self.close)

    def initialize(self, params: bytes | None) -> None:
        """Send the client's raw `initialize` params, with the version that it knows; session
        set-ups wait for the response."""
        try:
            asked = with_member(params or b"{}", ["protocolVersion"], b"%d" % self.version)
        except ValueError as exc:
            self._initialized(None, encode_error(INVALID_PARAMS, "Invalid params", str(exc)))
        else:
            call = InFlightRequest("initialize", OwnRequest(self._initialized))
            self.link.plain.request(call, "initialize", asked)
            self.link.start_queueing()

    async def run(self) -> None:
        """Run the chain to its end; then requests for its sessions are answered with the reason."""
        flusher = self.chains.client.flusher
        async with trio.open_nursery() as nursery:
            nursery.start_soon(write_loop, self._connection, flusher)
            nursery.start_soon(self._read)
            ending = await self.chain.run()
            self._theirs.close_writing()
            await self._read_to_end.wait()
            nursery.cancel_scope.cancel()
        plain = FailureErrors.plain(_ENDED)
        self._refuse(plain if ending.error is None else FailureErrors.of(ending.error))
        self.branch.is_closing = True
        self.chains.on_ended(self)
        flusher.flush()
        self.ended.set()

    async def _read(self) -> None:
        gate = self.chains.back_pressure.edge_gate()
        await read_loop(self._connection, self.chains.client.flusher, gate)
        self._read_to_end.set()

    def close(self) -> None:
        """End it in order, after its open requests."""
        self.branch.is_closing = True
        self._connection.close_writing()

    def stop(self) -> None:
        """End it in order, without waiting for open requests."""
        self.branch.is_closing = True
        self.chain.stop()

    def _initialized(self, result: Payload | None, error: Payload | None) -> None:
        if result is not None and protocol_version(result) != self.version:
            reason = f"it speaks version {protocol_version(result)} of the protocol"
            error = exception_to_error(StartError(self.name, reason))
        if error is not None:
            self._refuse(FailureErrors.plain(bytes(error)))
            self.stop()
            return
        login = self.chains.client.link.session_log.login if self.processes else None
        if login is None or login.params is None:
            self.link.release_queue()
            return
        call = InFlightRequest(login.method, OwnRequest(lambda *_: self.link.release_queue()))
        self.link.plain.deliver_request(call, login.method, login.params)

    def _refuse(self, errors: FailureErrors) -> None:
        """Answer all open and later requests with these errors."""
        if self.link.connection is not None:
            self.link.disconnect(errors)
        self.link.release_queue()


def _report_foreign(sender: str, names: dict[str, object]) -> None:
    log.warning("message for what belongs to another chain", sender=sender, **names)


def _report(event: str, detail: str, message: dict[str, object]) -> None:
    log.warning(event, sender="chain", detail=detail, **message)
