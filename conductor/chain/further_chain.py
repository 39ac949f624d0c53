"""A further chain of one client: started for the first session that needs it, ended after the last.

It is a `Chain` of its own with everything that belongs to one, connected by a pair of memory
transports to a link, behind which it looks like an agent. It gets the client's `initialize`;
session set-ups wait in the link's queue until it has answered.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import attrs
import trio

from conductor.chain.build import components_of
from conductor.chain.chain import Chain
from conductor.chain.response_watch import OwnRequest
from conductor.chain.session_router import Branch, SessionRouter
from conductor.chain.start_failure import FailureContext
from conductor.errors import StartError
from conductor.jsonrpc.connection import Connection
from conductor.jsonrpc.in_flight import InFlightRequest
from conductor.jsonrpc.json_object import with_member
from conductor.jsonrpc.messages import (
    INTERNAL_ERROR,
    INVALID_PARAMS,
    Payload,
    encode_error,
    exception_to_error,
)
from conductor.log import get_logger
from conductor.projects.planner import ChainPlan
from conductor.routing.capabilities import protocol_version
from conductor.routing.failure_errors import FailureErrors
from conductor.routing.link import Link
from conductor.tracing.recorder import TraceRecorder
from conductor.transport.io_loop import Flusher, ReadGate, read_loop, write_loop
from conductor.transport.memory import MemoryTransport, memory_pair

__all__ = ["FurtherChain"]

log: Final = get_logger(component="conductor")


@attrs.define(eq=False, repr=False)
class FurtherChain:
    """One further chain, of `plan`. `version` is the protocol version that the client knows."""

    plan: ChainPlan
    router: SessionRouter
    flusher: Flusher
    read_gate: ReadGate
    version: int
    on_ended: Callable[[FurtherChain], None]
    recorder: TraceRecorder | None = None
    plugin_nursery: trio.Nursery | None = None
    failure_context: FailureContext | None = None
    chain: Chain = attrs.field(init=False)
    branch: Branch = attrs.field(init=False)
    ended: trio.Event = attrs.field(factory=trio.Event, init=False)
    is_closing: bool = attrs.field(default=False, init=False)
    """Whether it takes no more sessions."""
    _theirs: MemoryTransport = attrs.field(init=False)
    _read_to_end: trio.Event = attrs.field(factory=trio.Event, init=False)
    _connection: Connection = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        ours, self._theirs = memory_pair()
        file = self.plan.chain
        self.chain = Chain(
            self._theirs,
            lambda: components_of(self.plan.to_start()),
            limits=file.limits,
            stop_timeout=file.stop_timeout,
            plugin_nursery=self.plugin_nursery,
            failure_context=self.failure_context,
            recorder=self.recorder,
            is_for_session=True,
        )
        link = Link(file.name, "agent", _report)
        link.session_log.limits = file.limits
        self._connection = Connection(ours, link, self.flusher, limits=file.limits)
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
            asked = with_member(params or b"{}", "protocolVersion", b"%d" % self.version)
        except ValueError as exc:
            self._initialized(None, encode_error(INVALID_PARAMS, "Invalid params", str(exc)))
        else:
            self.link.plain.request(call, "initialize", asked)
            self.link.start_queueing()

    async def run(self) -> None:
        """Run the chain to its end; then requests for its sessions are answered with the reason."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(write_loop, self._connection, self.flusher)
            nursery.start_soon(self._read)
            ending = await self.chain.run()
            self._theirs.close_writing()
            await self._read_to_end.wait()
            nursery.cancel_scope.cancel()
        plain = FailureErrors.plain(_ENDED)
        self._refuse(plain if ending.error is None else FailureErrors.of(ending.error))
        self.on_ended(self)
        self.flusher.flush()
        self.ended.set()

    async def _read(self) -> None:
        await read_loop(self._connection, self.flusher, self.read_gate)
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
