"""The further chains of one client, for sessions that do not belong into the first one.

A session set-up goes to the chain that its directory has now (`chain_choice`): to the first chain,
to one that runs already, or to a new one. Sessions that are open keep theirs. A chain ends after
its last session. The agent of each is a process of its own.

A `FurtherChain` is a `Chain` with everything that belongs to one, connected by a pair of memory
transports to a link, behind which it looks like an agent. It gets the client's `initialize`;
session set-ups wait in the link's queue until it has answered.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import attrs
import trio

from conductor.acp import session_id_of
from conductor.chain.build import components_of, spec_of
from conductor.chain.chain import Chain
from conductor.chain.chain_choice import FurtherChains
from conductor.chain.response_watch import OwnRequest, ResponseWatch
from conductor.chain.session_router import Branch, SessionRouter
from conductor.errors import RequestError, StartError
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
from conductor.log import get_logger
from conductor.projects.chooser import ChainChooser
from conductor.projects.planner import ChainPlan
from conductor.routing.capabilities import protocol_version
from conductor.routing.component import Cancelled
from conductor.routing.failure_errors import FailureErrors
from conductor.routing.link import Link
from conductor.transport.io_loop import Flusher, read_loop, write_loop
from conductor.transport.memory import MemoryTransport, memory_pair

__all__ = ["MAX_CHAINS", "SessionChains"]

MAX_CHAINS: Final = 16
"""Further chains of one client that run at the same time; each has its own processes."""

log: Final = get_logger(component="conductor")


@attrs.define(eq=False, repr=False)
class SessionChains(FurtherChains):
    """The further chains of one client."""

    first: Chain
    """The first chain."""
    chooser: ChainChooser
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
                    self.first.client_end.send_notice(session, notice.title, notice.detail)

        if plan.notices:
            ResponseWatch(call, after=show)

    def has(self, cancelled: Cancelled) -> bool:
        """Whether a further chain has this cancelled turn or request."""
        if isinstance(cancelled, str):
            return cancelled in self.first.client_end.elsewhere
        return any(cancelled.target is chain.link.plain for chain in self.running)

    @property
    def backlog(self) -> int:
        """Bytes that the slowest of them has not read."""
        return max((chain.link.backlog() for chain in self.running), default=0)

    def _chain_for(self, plan: ChainPlan) -> FurtherChain:
        for chain in self.running:
            if not chain.is_closing and plan.is_same(chain.plan):
                return chain
        if len(self.running) >= MAX_CHAINS:
            problem = f"more than {MAX_CHAINS} chains of other projects or versions; close sessions"
            raise RequestError(INVALID_REQUEST, "Too many chains", problem)
        return self._start(plan)

    def _start(self, plan: ChainPlan) -> FurtherChain:
        if self._router is None:
            self._router = SessionRouter(
                self.first.client_end.link.plain,
                self.first.client_end.link.plain,
                _report_foreign,
                self.first.client_end.link.session_log.sessions,
            )
            self.first.client_end.elsewhere = self._router.sessions.keys()
        chain = FurtherChain(plan, self.first, self._router, self._on_ended)
        self.running.append(chain)
        self._router.branches.append(chain.branch)
        log.lifecycle("further chain starts", components=[each.name for each in plan.chain.flat()])
        for name, condition in plan.left_out.items():
            log.lifecycle("component left out", name=name, when=condition)
        self.first.nursery.start_soon(chain.run)
        chain.initialize(self.first.startup_gate.params)
        return chain

    def _on_ended(self, chain: FurtherChain) -> None:
        assert self._router is not None
        self.running.remove(chain)
        for session in chain.branch.sessions:
            self.first.client_end.link.session_log.forget(session)
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


@attrs.define(eq=False, repr=False)
class FurtherChain:
    """One further chain, of `plan`, for the client of `first`."""

    plan: ChainPlan
    first: Chain
    router: SessionRouter
    on_ended: Callable[[FurtherChain], None]
    chain: Chain = attrs.field(init=False)
    branch: Branch = attrs.field(init=False)
    ended: trio.Event = attrs.field(factory=trio.Event, init=False)
    is_closing: bool = attrs.field(default=False, init=False)
    """Whether it takes no more sessions."""
    _theirs: MemoryTransport = attrs.field(init=False)
    _read_to_end: trio.Event = attrs.field(factory=trio.Event, init=False)
    _connection: Connection = attrs.field(init=False)
    version: int = attrs.field(init=False)
    """The protocol version that the client knows."""
    _flusher: Flusher = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self.version, self._flusher = self.first.startup_gate.version, self.first.flusher
        ours, self._theirs = memory_pair()
        file, recorder = self.plan.chain, self.first.recorder
        self.chain = Chain(
            self._theirs,
            spec_of(file, lambda: components_of(self.plan.to_start())),
            plugin_nursery=self.first.plugin_nursery,
            failure_context=self.first.failure_context,
            recorder=None if recorder is None else recorder.for_chain(file.name),
            is_for_session=True,
        )
        link = Link(file.name, "agent", _report)
        link.session_log.limits = file.limits
        self._connection = Connection(ours, link, self._flusher, limits=file.limits)
        link.connect(self._connection)
        self.branch = Branch(self.router, link, self.close)

    @property
    def link(self) -> Link:
        return self.branch.link

    def initialize(self, params: bytes | None) -> None:
        """Send the client's raw `initialize` params, with the version that it knows; session
        set-ups wait for the response."""
        call = InFlightRequest("initialize", OwnRequest(self._initialized))
        try:
            asked = with_member(params or b"{}", ["protocolVersion"], b"%d" % self.version)
        except ValueError as exc:
            self._initialized(None, encode_error(INVALID_PARAMS, "Invalid params", str(exc)))
        else:
            self.link.plain.request(call, "initialize", asked)
            self.link.start_queueing()

    async def run(self) -> None:
        """Run the chain to its end; then requests for its sessions are answered with the reason."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(write_loop, self._connection, self._flusher)
            nursery.start_soon(self._read)
            ending = await self.chain.run()
            self._theirs.close_writing()
            await self._read_to_end.wait()
            nursery.cancel_scope.cancel()
        plain = FailureErrors.plain(_ENDED)
        self._refuse(plain if ending.error is None else FailureErrors.of(ending.error))
        self.on_ended(self)
        self._flusher.flush()
        self.ended.set()

    async def _read(self) -> None:
        await read_loop(self._connection, self._flusher, self.first.back_pressure.edge_gate())
        self._read_to_end.set()

    def close(self) -> None:
        """End it in order, after its open requests."""
        self.is_closing = True
        self._connection.close_writing()

    def stop(self) -> None:
        """End it in order, without waiting for open requests."""
        self.is_closing = True
        self.chain.stop()

    def kill(self) -> None:
        self.is_closing = True
        self.chain.kill()

    def _initialized(self, result: Payload | None, error: Payload | None) -> None:
        if result is not None and protocol_version(result) != self.version:
            reason = f"it speaks version {protocol_version(result)} of the protocol"
            error = exception_to_error(StartError(self.plan.chain.name, reason))
        if error is None:
            self.link.release_queue()
            return
        self._refuse(FailureErrors.plain(bytes(error)))
        self.stop()

    def _refuse(self, errors: FailureErrors) -> None:
        """Answer all open and later requests with these errors."""
        if self.link.connection is not None:
            self.link.disconnect(errors)
        self.link.release_queue()


_ENDED: Final = encode_error(
    INTERNAL_ERROR, "The chain of this session has ended; start a new session, or load it"
)


def _report(event: str, detail: str, message: dict[str, object]) -> None:
    log.warning(event, sender="chain", detail=detail, **message)
