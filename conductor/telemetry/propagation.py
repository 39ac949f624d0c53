"""Propagation of the trace context: each session request to the agent gets the span of its hop.

The context of a message is that of its sender: the client's, that of the hop before, or of a proxy
with spans of its own. Where a proxy drops `_meta`, the turn's last context is used. Only requests
`session/…` are changed; everything else keeps its bytes.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Final, Literal

import attrs

from conductor.acp import PROMPT, session_id_of
from conductor.jsonrpc.in_flight import InFlightRequest
from conductor.jsonrpc.messages import Payload
from conductor.routing.stage import EVERY, ForwardRequest, ForwardResponse, Stage, StagedPort
from conductor.telemetry.trace_context import (
    NO_PARENT,
    Sampler,
    TraceContext,
    new_span_id,
    new_trace_id,
    with_context,
)
from conductor.tracing.recorder import Entry, TraceRecorder

__all__ = ["CHAIN_ENDED", "PropagatingRecorder"]

CHAIN_ENDED: Final = "chain ended"
"""The last log event of a chain in its records."""
_MAX_TURNS: Final = 1000


@attrs.define(eq=False, repr=False)
class _TracedPrompt:
    """A prompt in flight. `call` is the `id()` of its request on the first hop, `context` that of
    the last hop it passed."""

    session: str
    call: int
    context: TraceContext


class _Propagation(Stage):
    """Gives requests to the agent the context of this hop's span."""

    __slots__ = ("_recorder", "sent")

    name = "trace context"
    received: frozenset[str] = frozenset({PROMPT})

    def __init__(self, recorder: PropagatingRecorder, side: Literal["client", "agent"]) -> None:
        self._recorder = recorder
        self.sent: frozenset[str] = EVERY if side == "client" else frozenset()

    def send_request(
        self, forward: ForwardRequest, call: InFlightRequest, method: str, params: Payload | None
    ) -> None:
        if params is not None and method.startswith("session/"):
            params = self._recorder.passed_on(call, method, bytes(params))
        forward(call, method, params)

    def send_response(
        self,
        forward: ForwardResponse,
        call: InFlightRequest,
        result: Payload | None,
        error: Payload | None,
    ) -> None:
        self._recorder.answered(call)
        forward(call, result, error)


class PropagatingRecorder(TraceRecorder):
    """A recorder that propagates the trace context; `sampler` decides per request."""

    def __init__(
        self,
        chain: str,
        sink: Callable[[Entry], None] | None = None,
        flight: deque[Entry] | None = None,
        *,
        sampler: Sampler = lambda parent, trace_id: True,
    ) -> None:
        super().__init__(chain, sink, flight)
        self.sampler = sampler
        self._turns: dict[str, _TracedPrompt] = {}
        """By session."""

    def for_chain(self, chain: str) -> PropagatingRecorder:
        return PropagatingRecorder(chain, self.sink, self.flight, sampler=self.sampler)

    def trace(self, port: StagedPort, component: str, side: Literal["client", "agent"]) -> None:
        super().trace(port, component, side)
        port.insert(_Propagation(self, side))

    def end(self) -> None:
        self.logged("info", CHAIN_ENDED, {})
        TraceRecorder.end(self)

    def passed_on(self, call: InFlightRequest, method: str, params: bytes) -> bytes:
        """The params with the context of this hop's span."""

        def make(before: TraceContext | None) -> TraceContext:
            turn = None if before is not None or method != PROMPT else self._turn(params)
            parent = before if turn is None else turn.context
            trace_id = new_trace_id() if parent is None else parent.trace_id
            sampled = self.sampler(parent, trace_id)
            context = (
                TraceContext(trace_id, new_span_id(), sampled, parent=NO_PARENT)
                if parent is None
                else parent.child(sampled=sampled)
            )
            if method == PROMPT:
                self._keep(call, params, context)
            return context

        return with_context(params, make)

    def answered(self, call: InFlightRequest) -> None:
        """Forget the turn of a prompt that was answered on its first hop."""
        for session, turn in list(self._turns.items()):
            if turn.call == id(call):
                del self._turns[session]

    def _turn(self, params: bytes) -> _TracedPrompt | None:
        return self._turns.get(session_id_of(params) or "")

    def _keep(self, call: InFlightRequest, params: bytes, context: TraceContext) -> None:
        session = session_id_of(params)
        if session is None:
            return
        turn = self._turns.get(session)
        if turn is not None:
            turn.context = context
        elif len(self._turns) < _MAX_TURNS:
            self._turns[session] = _TracedPrompt(session, id(call), context)
