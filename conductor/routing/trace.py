"""The stage that shows each message to a tracer: `tracing.recorder` has it.

A chain that is not traced has no such stages, and no cost.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from time import monotonic
from typing import Any, Final, Literal, Protocol, TypeAlias

import msgspec
from msgspec import Raw

from conductor.jsonrpc.in_flight import InFlightRequest
from conductor.jsonrpc.messages import CANCEL, Payload, RawMember
from conductor.jsonrpc.notification_batch import NotificationBatch
from conductor.routing.port import Port
from conductor.routing.stage import (
    EVERY,
    ForwardCancel,
    Stage,
    StagedPort,
    StageMethod,
)
from conductor.transport.threads import WakeUp

__all__ = [
    "HEAD",
    "HandlerOutcome",
    "Head",
    "KeptPayload",
    "Mark",
    "MessageKind",
    "TraceStage",
    "TracedOwnRequests",
    "Tracer",
]

HEAD: Final = 2048
"""Bytes that are kept of a payload if it is not kept whole."""
MessageKind: TypeAlias = Literal["request", "notification", "response", "error"]
HandlerOutcome: TypeAlias = Literal["forwarded", "answered", "dropped", "failed"]


class Mark(msgspec.Struct, eq=False):
    """Reference to a message, for others that name it as their cause, until it has a number."""

    time: float
    """Time of passing, in seconds of the monotonic clock."""
    _base: Mark | None = None
    _offset: int = 0
    _n: int | None = None

    def part(self, index: int) -> Mark:
        """The mark of one message of a batch."""
        return Mark(self.time, self, index)

    @property
    def n(self) -> int | None:
        """The number of its record; `None` until it is written."""
        if self._base is None:
            return self._n
        return None if self._base.n is None else self._base.n + self._offset

    @n.setter
    def n(self, n: int) -> None:
        self._n = n


Head: TypeAlias = tuple[bytes, int, int]
"""Beginning of a payload that is not kept whole, or of a batch of notifications
(`NotificationBatch.beginning`); bytes of the whole, and number of messages."""
KeptPayload: TypeAlias = bytes | Raw | Head | NotificationBatch | None


class Tracer(Protocol):
    """Receives the messages of one chain, and events of its plugins."""

    add: Callable[[tuple[Any, ...]], None]
    """Takes the members of a `tracing.recorder.Passage`, which takes three times as long."""
    keeps_payloads: bool
    """Whether payloads are kept whole."""
    wake_up: WakeUp
    """Its time is that of the messages; without it, the clock is read."""
    current: Mark | None
    """The message that a port is given at the moment, and may pass on in the same call."""
    has_causes: bool
    """Whether the chain has plugins: each message has a mark, and names its cause."""
    handled: Callable[[], Mark | None]
    """Returns the last message that the handler running in this task has got. Handlers run in no
    wake-up."""

    def trace(self, port: StagedPort, component: str, side: Literal["client", "agent"]) -> None:
        """Trace what a component gets through its port on this side."""

    def component_at(self, port: Port) -> str:
        """The component that a traced port is of; empty for other ports."""

    def trace_own_requests(self, component: str) -> TracedOwnRequests:
        """The tracer of the conductor's own requests to this component."""

    def handler_ended(
        self,
        component: str,
        method: str,
        location: str,
        message: Mark,
        started: float,
        ended: float,
        outcome: HandlerOutcome,
    ) -> None:
        """A handler of a plugin has ended. `message` is what it handled, `location` its file:line;
        times are in seconds of the monotonic clock."""


class TraceStage(Stage):
    """Shows a tracer what a component gets from a neighbour: each message of a hop once, at its
    receiver. In a chain with plugins, each message gets a mark, and names its cause."""

    __slots__ = ("_add", "_limit", "_wake_up", "component", "sender", "side", "tracer")

    name = "trace"
    sent: frozenset[str] = EVERY
    received: frozenset[str] = EVERY

    def __init__(
        self, tracer: Tracer, component: str, side: Literal["client", "agent"], sender: str
    ) -> None:
        self._add = tracer.add
        self._wake_up = tracer.wake_up
        self._limit = 1 << 62 if tracer.keeps_payloads else HEAD
        self.tracer: Tracer = tracer
        self.component: str = component
        self.side = side
        """The neighbour that the port is for: messages from a "client" go toward the agent."""
        self.sender: str = sender
        """The component that was connected to the port last."""

    def connected(self, neighbour: Port) -> None:
        self.sender = self.tracer.component_at(neighbour) or self.sender

    def takes(self, kind: StageMethod, method: str) -> bool:
        return kind.startswith("send")

    def step(self, kind: StageMethod, method: str) -> Callable[..., None]:
        return self.send_cancel if kind == "send_cancel" else partial(self.show, kind)

    def send_cancel(self, forward: ForwardCancel, call: InFlightRequest) -> None:
        now = self._wake_up.time or monotonic()
        detail = id(call), call.cancelled
        self._add((now, self, "notification", CANCEL, None, *detail, Mark(now), None))
        forward(call)

    def show(self, kind: StageMethod, forward: Callable[..., None], *message: Any) -> None:
        """Record a message that is no cancellation, and pass it on; it is the current one
        meanwhile."""
        shown: MessageKind = "notification"
        payload: Payload | NotificationBatch | None
        call, detail = 0, None
        if kind == "send_notification":
            method, payload = message
        elif kind == "send_batch":
            payload = message[0]
            method = message[0].method
        elif kind == "send_request":
            request, method, payload = message
            shown, call, detail = "request", id(request), request.source_id
        else:
            request, result, error = message
            shown, payload = ("response", result) if error is None else ("error", error)
            method, call, detail = request.method, id(request), request.cancelled
        kept: KeptPayload
        if type(payload) is NotificationBatch:
            kept = payload if self._limit > HEAD else payload.beginning(HEAD)
        elif payload is None:
            kept = None
        elif len(payload) > self._limit:
            kept = bytes(memoryview(payload)[:HEAD]), len(payload), 1
        elif type(payload) is Raw:  # most of its line (`codec.detached_copy`), or one of a block
            kept = payload.copy() if shown == "notification" else payload
        else:
            kept = bytes(payload)
        tracer, time = self.tracer, self._wake_up.time
        now = time or monotonic()
        if not tracer.has_causes:
            self._add((now, self, shown, method, kept, call, detail))
            forward(*message)
            return
        before, mark = tracer.current, Mark(now)
        cause = tracer.handled() if before is None and not time else before
        self._add((now, self, shown, method, kept, call, detail, mark, cause))
        tracer.current = mark
        try:
            forward(*message)
        finally:
            tracer.current = before


class TracedOwnRequests:
    """Shows the requests of the conductor itself to a component, and their responses."""

    def __init__(self, to_component: TraceStage, to_conductor: TraceStage) -> None:
        """Neither stage is in a port."""
        self._to_component, self._to_conductor = to_component, to_conductor

    def sent(self, call: InFlightRequest, method: str, params: Payload | None) -> None:
        self._to_component.show("send_request", _nowhere, call, method, params)

    def answered(self, call: InFlightRequest, result: RawMember, error: RawMember) -> None:
        self._to_conductor.show("send_response", _nowhere, call, result, error)


def _nowhere(*message: object) -> None:
    """The way of a message that is only shown."""
