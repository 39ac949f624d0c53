"""Ports that report each message to a tracer.

    port of the neighbour ─▶ TracedPort ─▶ port of the component

Each message of a hop passes one traced port, that of its receiver, so it is seen once. A chain that
is not traced has no such ports, and no cost. `tracing.recorder` has the tracer.
"""

from __future__ import annotations

from collections.abc import Callable
from time import monotonic
from typing import Any, Final, Literal, Protocol, TypeAlias

from msgspec import Raw

from conductor.jsonrpc.in_flight import InFlightRequest
from conductor.jsonrpc.messages import CANCEL, Id, Payload
from conductor.jsonrpc.notification_batch import NotificationBatch
from conductor.routing.port import UNCONNECTED, Port
from conductor.transport.wake_up import WakeUp

__all__ = [
    "HEAD",
    "CausingPort",
    "HandlerOutcome",
    "Head",
    "KeptPayload",
    "Mark",
    "MessageKind",
    "Nowhere",
    "TracedOwnRequests",
    "TracedPort",
    "Tracer",
]

HEAD: Final = 2048
"""Bytes that are kept of a payload if it is not kept whole."""
MessageKind: TypeAlias = Literal["request", "notification", "response", "error"]
HandlerOutcome: TypeAlias = Literal["forwarded", "answered", "dropped", "failed"]


class Mark:
    """Reference to a message, for others that name it as their cause, until it has a number."""

    __slots__ = ("_base", "_n", "_offset", "time")

    def __init__(self, time: float, base: Mark | None = None, offset: int = 0) -> None:
        self.time: float = time
        """Time of passing, in seconds of the monotonic clock."""
        self._base = base
        self._offset = offset
        self._n: int | None = None

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
    """Receives the messages of one chain's ports, and events of its plugins."""

    add: Callable[[tuple[Any, ...]], None]
    """Takes the members of a `tracing.passage.Passage`, which takes three times as long to make."""
    keeps_payloads: bool
    """Whether payloads are kept whole."""
    wake_up: WakeUp
    """Its time is that of the messages; without it, the clock is read."""
    current: Mark | None
    """The message that a port is given at the moment, and may pass on in the same call."""
    handled: Callable[[], Mark | None]
    """Returns the last message that the handler running in this task has got."""

    def trace(self, port: Port, component: str, side: Literal["client", "agent"]) -> TracedPort:
        """The port to be used instead of `port`, which is a component's port on this side."""

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


class TracedPort(Port):
    """Passes each message on to `port`, a port of `component`, after it was shown to `tracer`."""

    __slots__ = ("_add", "_limit", "_port", "_wake_up", "component", "sender", "side", "tracer")

    def __init__(
        self, port: Port, tracer: Tracer, component: str, side: Literal["client", "agent"]
    ) -> None:
        self._port = port
        self.neighbour: Port = port.neighbour
        port.on_cancel = self.cancelled
        self._add = tracer.add
        self._wake_up = tracer.wake_up
        self._limit = 1 << 62 if tracer.keeps_payloads else HEAD
        self.tracer: Tracer = tracer
        self.component: str = component
        self.side = side
        """The neighbour that the port is for: messages to a port "client" go toward the agent."""
        self.sender: str = ""
        """The component that was connected to the port last."""

    def sender_of(self, method: str) -> str:
        return self._port.sender_of(method)

    def connect(self, neighbour: Port) -> None:
        self.neighbour = neighbour
        self._port.connect(neighbour)
        if isinstance(neighbour, TracedPort):
            self.sender = neighbour.component

    def request(self, call: InFlightRequest, method: str, params: Payload | None) -> None:
        kept: KeptPayload
        if type(params) is Raw and len(params) <= self._limit:
            kept = params  # most of its line: see `codec.detached_copy`
        else:
            kept = self._kept(params)
        now = self._wake_up.time or monotonic()
        self._add((now, self, "request", method, kept, id(call), call.source_id))
        self._port.request(call, method, params)

    def notify(self, method: str, params: Payload | None) -> None:
        if type(params) is Raw and len(params) <= HEAD:
            kept: KeptPayload = params.copy()  # of a block of many; a further call takes long
        else:
            kept = self._kept(params)
        self._add((self._wake_up.time or monotonic(), self, "notification", method, kept))
        self._port.notify(method, params)

    def notify_batch(self, notifications: NotificationBatch) -> None:
        kept = self._kept_batch(notifications)
        now = self._wake_up.time or monotonic()
        self._add((now, self, "notification", notifications.method, kept))
        self._port.notify_batch(notifications)

    def respond(self, call: InFlightRequest, result: Payload | None, error: Payload | None) -> None:
        kind, payload = ("response", result) if error is None else ("error", error)
        kept: KeptPayload
        if type(payload) is Raw and len(payload) <= self._limit:
            kept = payload
        else:
            kept = self._kept(payload)
        now = self._wake_up.time or monotonic()
        self._add((now, self, kind, call.method, kept, id(call), call.cancelled))
        self._port.respond(call, result, error)

    def detach(self) -> None:
        """Let go of the component, which entries of the tracer would keep in memory."""
        self._port.on_cancel = None
        self._port = self.neighbour = UNCONNECTED

    def cancelled(self, call: InFlightRequest) -> None:
        """The port has got the cancellation of a request."""
        now = self._wake_up.time or monotonic()
        detail = id(call), call.cancelled
        self._add((now, self, "notification", CANCEL, None, *detail, Mark(now), None))

    def cancel(self, call: InFlightRequest) -> None:
        self._port.cancel(call)

    def backlog(self) -> int:
        return self._port.backlog()

    def unread(self) -> int:
        return self._port.unread()

    def _kept(self, payload: Payload | None) -> bytes | Raw | Head | None:
        """Copies: a slice would keep the whole read buffer alive."""
        if type(payload) is Raw and len(payload) <= HEAD:
            return payload.copy()  # half the time of bytes(), which would be another copy of more
        if payload is None or len(payload) <= self._limit:
            return None if payload is None else bytes(payload)
        return bytes(memoryview(payload)[:HEAD]), len(payload), 1

    def _kept_batch(self, notifications: NotificationBatch) -> NotificationBatch | Head:
        if self._limit > HEAD:
            return notifications
        return notifications.beginning(HEAD)


class CausingPort(TracedPort):
    """A traced port in a chain with plugins: each message gets a mark, and names its cause."""

    __slots__ = ()

    def request(self, call: InFlightRequest, method: str, params: Payload | None) -> None:
        before = self._mark("request", method, self._kept(params), id(call), call.source_id)
        try:
            self._port.request(call, method, params)
        finally:
            self.tracer.current = before

    def notify(self, method: str, params: Payload | None) -> None:
        before = self._mark("notification", method, self._kept(params))
        try:
            self._port.notify(method, params)
        finally:
            self.tracer.current = before

    def notify_batch(self, notifications: NotificationBatch) -> None:
        kept = self._kept_batch(notifications)
        before = self._mark("notification", notifications.method, kept)
        try:
            self._port.notify_batch(notifications)
        finally:
            self.tracer.current = before

    def respond(self, call: InFlightRequest, result: Payload | None, error: Payload | None) -> None:
        kind, payload = ("response", result) if error is None else ("error", error)
        kept = self._kept(payload)
        before = self._mark(kind, call.method, kept, id(call), call.cancelled)
        try:
            self._port.respond(call, result, error)
        finally:
            self.tracer.current = before

    def _mark(
        self, kind: str, method: str, kept: KeptPayload, call: int = 0, detail: Id | bool = None
    ) -> Mark | None:
        """Record a message and make it the current one; returns the current one so far."""
        tracer, now = self.tracer, monotonic()
        before, mark = tracer.current, Mark(now)
        cause = tracer.handled() if before is None else before
        self._add((now, self, kind, method, kept, call, detail, mark, cause))
        tracer.current = mark
        return before


class TracedOwnRequests:
    """Shows the requests of the conductor itself to a component, and their responses: they pass no
    port of a neighbour."""

    def __init__(self, to_component: TracedPort, to_conductor: TracedPort) -> None:
        """Both ports pass everything on to `Nowhere`."""
        self._to_component, self._to_conductor = to_component, to_conductor

    def sent(self, call: InFlightRequest, method: str, params: Payload | None) -> None:
        self._to_component.request(call, method, params)

    def answered(
        self, call: InFlightRequest, result: Payload | None, error: Payload | None
    ) -> None:
        self._to_conductor.respond(call, result, error)


class Nowhere(Port):
    """A port that takes everything, and does nothing."""

    __slots__ = ()

    def request(self, call: InFlightRequest, method: str, params: Payload | None) -> None:
        pass

    def respond(self, call: InFlightRequest, result: Payload | None, error: Payload | None) -> None:
        pass
