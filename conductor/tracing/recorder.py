"""The recorder of one chain: what passed its hops, and what happened to its components.

Entries go to a trace file or, without one, to the flight recorder: the last of them, with the first
2 KiB of each payload, so that one can look at what came before a failure. Nothing is encoded here;
`encoder` makes records of entries, in the thread of the trace file or when the flight recorder is
written.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Sequence
from contextvars import ContextVar
from functools import partial
from typing import Any, Final, Literal, NamedTuple, TypeAlias

import msgspec

from conductor.jsonrpc.messages import Id
from conductor.log import bind_context, listen
from conductor.routing.component import Component
from conductor.routing.port import Port
from conductor.routing.stage import StagedPort
from conductor.routing.trace import (
    HandlerOutcome,
    KeptPayload,
    Mark,
    MessageKind,
    TracedOwnRequests,
    Tracer,
    TraceStage,
)
from conductor.tracing.trace_component import TraceComponent
from conductor.transport.threads import WakeUp, wake_up_of_thread

__all__ = [
    "FLIGHT_ENTRIES",
    "Entry",
    "HandlerEntry",
    "LogEntry",
    "LossEntry",
    "Passage",
    "StartEntry",
    "StderrEntry",
    "TraceRecorder",
    "current_recorder",
    "on_failure",
    "report_failure",
]

_CONDUCTOR: Final = "conductor"
"""Stands for the conductor itself in `sender` and `receiver`."""
_FAILURES: Final = frozenset(
    {
        "chain failed to start",
        "component failed",
        "component failed, chain ends",
        "the chain goes on without a component",
    }
)
FLIGHT_ENTRIES: Final = 2048
"""Entries that the flight recorder keeps, each with 2 KiB of payload at most."""
_MAX_EARLY: Final = 1000


class HandlerEntry(msgspec.Struct, frozen=True, eq=False):
    """The run of a handler. Times are in seconds of the monotonic clock."""

    recorder: TraceRecorder
    started: float
    ended: float
    component: str
    method: str
    location: str
    message: Mark
    outcome: HandlerOutcome


class LogEntry(msgspec.Struct, frozen=True, eq=False):
    """A log event of the conductor or of a plugin. `time` is of the monotonic clock."""

    recorder: TraceRecorder
    time: float
    level: str
    event: str
    component: str
    message: Mark | None
    """The message that was being handled."""
    fields: dict[str, Any]


class StderrEntry(msgspec.Struct, frozen=True, eq=False):
    """A line that a component wrote to stderr. `time` is of the monotonic clock."""

    recorder: TraceRecorder
    time: float
    component: str
    text: str


class StartEntry(msgspec.Struct, frozen=True, eq=False):
    """The components of the chain were built, and are about to start."""

    recorder: TraceRecorder
    components: tuple[TraceComponent, ...]


class LossEntry(msgspec.Struct, eq=False):
    """Entries could not be kept."""

    recorder: TraceRecorder
    time: float
    count: int = 0


class Passage(NamedTuple):
    """A message that passed a hop. Recorders keep tuples of its members."""

    time: float
    """In seconds of the monotonic clock."""
    port: TraceStage
    kind: MessageKind
    method: str
    """For a response, the method of the request."""
    payload: KeptPayload
    call: int = 0
    """Identifies a request, its response and its cancellation (a notification that stands for the
    one on each hop that the request has passed); hops may have the same."""
    detail: Id | bool = None
    """For a request, the sender's id; for a response, whether the request was cancelled; for a
    cancellation, whether the sender of the request cancelled it, and not the conductor."""
    mark: Mark | None = None
    cause: Mark | None = None


Entry: TypeAlias = (
    "tuple[Any, ...] | HandlerEntry | LogEntry | StderrEntry | StartEntry | LossEntry"
)
"""A tuple has the members of a `Passage`."""


class TraceRecorder(Tracer):
    """Records one chain; `sink` takes its entries, or without one `flight`, the flight recorder.

    The chains of a server share a flight recorder.
    """

    def __init__(
        self,
        chain: str,
        sink: Callable[[Entry], None] | None = None,
        flight: deque[Entry] | None = None,
    ) -> None:
        self.chain = chain
        self.sink = sink
        self.flight: deque[Entry] = deque(maxlen=FLIGHT_ENTRIES) if flight is None else flight
        self.components: list[TraceComponent] = []
        """Components of the last start, beginning with the client."""
        self.add: Callable[[Entry], None] = self.flight.append if sink is None else sink
        self.keeps_payloads: bool = sink is not None
        self.wake_up: WakeUp = wake_up_of_thread()
        self.current: Mark | None = None
        self.handled: Callable[[], Mark | None] = lambda: None
        self.started: float = time.monotonic()
        self.started_at: float = time.time()
        """The same moment in seconds since 1970."""
        self._traces: dict[StagedPort, TraceStage] = {}
        self._places: dict[tuple[str, ...], dict[str, Any]] = {}
        """What `place` has returned since the last start."""
        self._early: list[LogEntry] = []
        """Log events of the time before the components are built: the header comes first."""
        self.has_causes: bool = False

    def for_chain(self, chain: str) -> TraceRecorder:
        """A recorder for another chain of the same client, with the same `sink` and `flight`."""
        return TraceRecorder(chain, self.sink, self.flight)

    def attach(self, components: Sequence[Component]) -> None:
        """Trace components that are about to be connected."""
        self._let_go()
        self.has_causes = any(each.has_handlers for each in components)
        self._places.clear()
        self.components = [TraceComponent("client", "Client", "client")]
        for index, each in enumerate(components):
            label = "Agent" if each.agent_port is None else f"Proxy({index})"
            self.components.append(TraceComponent(each.name, label, each.kind, each.place))
        if components and components[-1].agent_port is not None:
            self.components.append(TraceComponent("successor", "Agent", "parent"))
        for each in components:
            each.trace(self)
        if self.sink is not None:
            self.add(StartEntry(self, tuple(self.components)))
            self._add_early()

    def _add_early(self) -> None:
        for entry in self._early:
            self.add(entry)
        self._early.clear()

    def trace(self, port: StagedPort, component: str, side: Literal["client", "agent"]) -> None:
        names, sender = [each.name for each in self.components], ""
        if component in names:  # else it is inserted, and gets its neighbours later
            index = names.index(component) + (1 if side == "agent" else -1)
            sender = names[index] if 0 <= index < len(names) else ""
        self._traces[port] = made = TraceStage(self, component, side, sender)
        port.insert(made)

    def component_at(self, port: Port) -> str:
        found = self._traces.get(port) if isinstance(port, StagedPort) else None
        return "" if found is None else found.component

    def end(self) -> None:
        """The chain has ended: let go of its components."""
        self._add_early()
        self._let_go()

    def _let_go(self) -> None:
        """Take the stages out of the ports: entries would keep these in memory."""
        for port, trace in self._traces.items():
            port.remove(trace)
            del trace.port
        self._traces.clear()

    def notify(self, client: StagedPort, method: str, params: bytes) -> None:
        """Send the client a notification of the conductor itself."""
        trace = self._traces.get(client)
        way = client.notify if trace is None else partial(client.send, trace, None)
        stage = TraceStage(self, "client", "agent", _CONDUCTOR)
        stage.show("send_notification", way, method, params)

    def trace_own_requests(self, component: str) -> TracedOwnRequests:
        return TracedOwnRequests(
            TraceStage(self, component, "client", _CONDUCTOR),
            TraceStage(self, _CONDUCTOR, "agent", component),
        )

    def place(self, port: TraceStage, sender: str) -> dict[str, Any]:
        """The members of a record of a message to a port that tell where it passed."""
        key = port.component, port.side, port.sender, sender
        found = self._places.get(key)
        if found is None:
            found = self._places[key] = {
                "from_": self.label(sender),
                "to": self.label(port.component),
                "sender": sender,
                "receiver": port.component,
                "hop": self.hop(port),
            }
        return found

    def hop(self, port: TraceStage) -> int:
        """The hop in front of a port: 0 is the one between the client and the first component.

        Answers of a component to the conductor are on the hop in front of the component. A
        component may itself have the name "conductor".
        """
        names = [each.name for each in self.components]
        if port.component == _CONDUCTOR and port.side == "agent" and port.sender in names:
            return names.index(port.sender) - 1
        if port.component not in names:  # inserted before the agent, into the last hop
            return len(names) - 2
        index = names.index(port.component)
        return index - 1 if port.side == "client" else index

    def label(self, component: str) -> str:
        """The name of a component in `from` and `to`."""
        for each in self.components:
            if each.name == component:
                return each.label
        return component

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
        self.add(HandlerEntry(self, started, ended, component, method, location, message, outcome))

    def logged(self, level: str, event: str, fields: dict[str, Any]) -> None:
        """A log event; lines of a component's stderr are among them."""
        now = self.wake_up.time or time.monotonic()
        component = str(fields.pop("component", "conductor"))
        if event == "stderr":
            self.add(StderrEntry(self, now, component, str(fields.get("line", ""))))
        else:
            entry = LogEntry(self, now, level, event, component, self.handled(), fields)
            if self.sink is None or self.components or len(self._early) == _MAX_EARLY:
                self.add(entry)
            else:
                self._early.append(entry)
        if level == "error" and event in _FAILURES:
            report_failure()


def _logged(level: str, event: str, fields: dict[str, Any]) -> None:
    recorder = current_recorder.get()
    if recorder is not None:
        recorder.logged(level, event, fields)


def on_failure(listener: Callable[[], None]) -> None:
    """Call `listener` when a component of any chain has failed, or the conductor itself."""
    global _failure_listener
    _failure_listener = listener


def report_failure() -> None:
    """Call the listener of `on_failure`, for a failure that is not a log event of a chain."""
    if _failure_listener is not None:
        _failure_listener()


def _context() -> dict[str, object]:
    recorder = current_recorder.get()
    return {} if recorder is None or not recorder.chain else {"chain": recorder.chain}


listen(_logged)
bind_context(_context)
_failure_listener: Callable[[], None] | None = None
current_recorder: ContextVar[TraceRecorder | None] = ContextVar("current_recorder", default=None)
"""The recorder of the chain that this task belongs to."""
