"""Propagation of the W3C trace context in `_meta` (RFD meta-propagation).

Each session request to the agent gets the span of its hop. The context of a message is that of its
sender: the client's, that of the hop before, or of a proxy with spans of its own. Where a proxy
drops `_meta`, the turn's last context is used. Only requests `session/…` are changed; everything
else keeps its bytes.

The span's id is in `traceparent`, its parent's id in the conductor's own member of `tracestate`, as
W3C trace context suggests for the position of a vendor. So a recorded message tells which span it
is, and where it belongs.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable
from typing import Any, Final, Literal

import msgspec
from opentelemetry.context import Context
from opentelemetry.trace import (
    NonRecordingSpan,
    SpanContext,
    Tracer,
    TraceState,
    get_current_span,
    set_span_in_context,
)
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from conductor.acp import PROMPT, session_id_of
from conductor.json_values import decode_value
from conductor.jsonrpc.in_flight import InFlightRequest
from conductor.jsonrpc.json_object import object_members, with_member
from conductor.jsonrpc.messages import Payload
from conductor.routing.stage import EVERY, ForwardRequest, ForwardResponse, Stage, StagedPort
from conductor.tracing.recorder import Entry, TraceRecorder

__all__ = ["CHAIN_ENDED", "PropagatingRecorder", "below", "context_of", "own_parent"]

CHAIN_ENDED: Final = "chain ended"
"""The last log event of a chain in its records."""
_VENDOR: Final = "acp-conductor"
_SPAN_ID: Final = re.compile("[0-9a-f]{16}")
_MAX_MEMBERS, _MAX_STATE = 32, 512
"""Members and characters of `tracestate` (W3C trace context, section 3.3.1)."""

_propagator: Final = TraceContextTextMapPropagator()


def context_of(meta: Any) -> SpanContext:
    """The trace context in a decoded `_meta`; not `is_valid` if there is none."""
    carrier = meta if isinstance(meta, dict) else {}
    texts = {
        name: carrier[name] for name in _propagator.fields if isinstance(carrier.get(name), str)
    }
    return get_current_span(_propagator.extract(texts)).get_span_context()


def own_parent(context: SpanContext) -> int | None:
    """The id of the parent's span, 0 at the root, if the conductor wrote the context."""
    parent = context.trace_state.get(_VENDOR, "")
    return int(parent, 16) if _SPAN_ID.fullmatch(parent) else None


def below(parent: SpanContext | None) -> Context:
    """The context in which the SDK starts a child of this span, or a root."""
    return Context() if parent is None else set_span_in_context(NonRecordingSpan(parent), Context())


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
    """A recorder that propagates the trace context; ids and samples are those of `tracer`, whose
    spans are not exported."""

    def __init__(
        self,
        chain: str,
        sink: Callable[[Entry], None] | None = None,
        flight: deque[Entry] | None = None,
        *,
        tracer: Tracer,
    ) -> None:
        super().__init__(chain, sink, flight)
        self.tracer = tracer
        self._turns: dict[str, tuple[InFlightRequest, SpanContext]] = {}
        """By session: its prompt in flight on the first hop, and the context of its last hop."""

    def for_chain(self, chain: str) -> PropagatingRecorder:
        return PropagatingRecorder(chain, self.sink, self.flight, tracer=self.tracer)

    def trace(self, port: StagedPort, component: str, side: Literal["client", "agent"]) -> None:
        super().trace(port, component, side)
        port.insert(_Propagation(self, side))

    def end(self) -> None:
        self.logged("info", CHAIN_ENDED, {})
        TraceRecorder.end(self)

    def passed_on(self, call: InFlightRequest, method: str, params: bytes) -> bytes:
        """The params with the context of this hop's span; other members keep their bytes.

        Params that are not an object, or have a `_meta` that is not one, are returned unchanged.
        """
        try:
            raw = object_members(params).get("_meta", b"null")
            meta = b"{}" if raw == b"null" else raw
            members = object_members(meta)
        except ValueError:
            return params
        parent = context_of({name: _text(members.get(name)) for name in _propagator.fields})
        session = session_id_of(params) if method == PROMPT else None
        first, last = self._turns.get(session or "", (call, parent))
        if not parent.is_valid:
            parent = last
        span = self.tracer.start_span(method, below(parent)).get_span_context()
        if session is not None:
            self._turns[session] = first, span
        own = span.trace_id, span.span_id, False, span.trace_flags, _state(parent)
        carrier: dict[str, str] = {}
        _propagator.inject(carrier, below(SpanContext(*own)))
        for name, text in carrier.items():
            meta = with_member(meta, [name], msgspec.json.encode(text))
        return with_member(params, ["_meta"], meta)

    def answered(self, call: InFlightRequest) -> None:
        """Forget the turn of a prompt that was answered on its first hop."""
        for session, (first, _) in list(self._turns.items()):
            if first is call:
                del self._turns[session]


def _state(parent: SpanContext) -> TraceState:
    """The `tracestate` of a child: the oldest members are dropped if it would be too long."""
    others = [(name, value) for name, value in parent.trace_state.items() if name != _VENDOR]
    members = [(_VENDOR, f"{parent.span_id:016x}"), *others][:_MAX_MEMBERS]
    while len((state := TraceState(members)).to_header()) > _MAX_STATE:
        members.pop()
    return state


def _text(raw: bytes | None) -> Any:
    try:
        return None if raw is None else decode_value(raw)
    except msgspec.DecodeError:
        return None
