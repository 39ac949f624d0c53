"""Counters of what passes the hops of all chains.

Each chain's recorder shows its entries to a `_ChainCounter` before it keeps them: half a
microsecond for a message.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Callable
from typing import Any, Final

import attrs
import msgspec
from msgspec import Raw

from conductor import error_codes
from conductor.acp import MCP_METHODS, PROMPT
from conductor.json_values import decode_value
from conductor.jsonrpc.notification_batch import NotificationBatch
from conductor.schema.methods import V1, V2
from conductor.tracing.recorder import Entry, LogEntry, LossEntry, TraceRecorder

__all__ = ["BUCKETS", "OTHER", "OUTCOMES", "DurationHistogram", "MetricCounters", "Traffic"]

OTHER: Final = "other"
"""Label of everything that has no label of its own."""
BUCKETS: Final = (0.001, 0.005, 0.025, 0.1, 0.5, 1.0, 2.5, 5.0, 15.0, 60.0, 300.0, 1800.0)
"""Upper bounds of durations, in seconds: from a plugin's answer to a long turn."""
_METHODS: Final = frozenset(V1) | frozenset(V2) | MCP_METHODS
_STOP_REASONS: Final = frozenset(
    ("end_turn", "max_tokens", "max_turn_requests", "refusal", "cancelled")
)
OUTCOMES: Final = (*sorted(_STOP_REASONS), "error")
"""Labels of turns that have ended."""
_MCP_TIMEOUT: Final = -32001
_CODES: Final = {getattr(error_codes, name) for name in error_codes.__all__} | {_MCP_TIMEOUT}
_MAX_COMPONENTS: Final = 100
_MAX_KEYS: Final = 1000
"""Maximum keys of one chain: a client may invent methods."""
_EVENTS: Final = {
    "component failed": "failures",
    "component restarted": "restarts",
    "chain failed to start": "start_failures",
}


@attrs.define(eq=False)
class Traffic:
    """Messages, and bytes of their payloads."""

    messages: int = 0
    bytes: int = 0


@attrs.define(eq=False)
class DurationHistogram:
    """A histogram: the number of durations in each bucket, the last one for longer ones."""

    counts: list[int] = attrs.field(factory=lambda: [0] * (len(BUCKETS) + 1))
    total: float = 0.0

    def add(self, seconds: float) -> None:
        self.counts[bisect_left(BUCKETS, seconds)] += 1
        self.total += seconds


class _ErrorCode(msgspec.Struct):
    code: int = 0


class _StopReason(msgspec.Struct):
    stopReason: str | None = None


@attrs.define(eq=False)
class MetricCounters:
    """The counters of a server, since its start. Keys are labels."""

    traffic: dict[tuple[str, str, str, str], Traffic] = attrs.field(factory=dict)
    """By receiver, end that it goes toward, kind and method."""
    durations: dict[tuple[str, str], DurationHistogram] = attrs.field(factory=dict)
    """From a request to its response, by the component that was asked and method."""
    errors: Counter[tuple[str, str, str]] = attrs.field(factory=Counter)
    """Error responses, by the component that sent them, method and code."""
    prompts: Counter[str] = attrs.field(factory=Counter)
    """Turns that have ended, by stop reason, and prompts that were answered with an error."""
    failures: Counter[str] = attrs.field(factory=Counter)
    """By component, as are `restarts` and `start_failures`."""
    restarts: Counter[str] = attrs.field(factory=Counter)
    start_failures: Counter[str] = attrs.field(factory=Counter)
    lost: int = 0
    """Entries of traces that could not be written in time."""
    components: set[str] = attrs.field(factory=set)
    """The labels of components."""

    def watch(self, recorder: TraceRecorder) -> None:
        """Count what a recorder gets; to be called before its chain starts."""
        recorder.add = _ChainCounter(self, recorder.add).add

    def turn_ended(self, reason: str | None) -> None:
        """A turn of version 2 has ended, some time after its prompt was answered."""
        self.prompts[reason if reason in _STOP_REASONS else OTHER] += 1

    def component(self, name: str) -> str:
        """The label of a component; the names are those of the chain file."""
        if name not in self.components:
            if len(self.components) >= _MAX_COMPONENTS:
                return OTHER
            self.components.add(name)
        return name


@attrs.define(eq=False)
class _ChainCounter:
    """Counts for one chain, and remembers its open requests."""

    counters: MetricCounters
    keep: Callable[[Entry], None]
    _traffic: dict[tuple[str, str, str, str], Traffic] = attrs.field(factory=dict, init=False)
    """Entries of `MetricCounters`, by component, side, kind and method as received."""
    _open: dict[tuple[int, str], float] = attrs.field(factory=dict, init=False)
    """Times of requests, by identity and by the component that was asked."""

    def add(self, entry: Entry) -> None:
        """Count an entry, and pass it on."""
        self.keep(entry)
        if not isinstance(entry, tuple):
            self._note(entry)
            return
        time, port, kind, method, payload = entry[:5]
        try:
            traffic = self._traffic[port.component, port.side, kind, method]
        except KeyError:
            traffic = self._new_traffic(port.component, port.side, kind, method)
        if payload is None:
            traffic.messages += 1
        elif type(payload) is Raw or type(payload) is bytes:
            traffic.messages += 1
            traffic.bytes += len(payload)
        elif isinstance(payload, NotificationBatch):
            _, size, count = payload.beginning(0)
            traffic.messages += count
            traffic.bytes += size
        else:
            traffic.messages += payload[2]
            traffic.bytes += payload[1]
        if kind == "request":
            self._open[entry[5], port.component] = time
        elif kind != "notification":
            self._answered(entry, port.sender)

    def _new_traffic(self, component: str, side: str, kind: str, method: str) -> Traffic:
        toward = "agent" if side == "client" else "client"
        label = self.counters.component(component)
        key = label, toward, kind, _method(method)
        traffic = self.counters.traffic.setdefault(key, Traffic())
        if len(self._traffic) < _MAX_KEYS:
            self._traffic[component, side, kind, method] = traffic
        return traffic

    def _answered(self, entry: tuple[Any, ...], sender: str) -> None:
        time, port, kind, method, payload, call = entry[:6]
        component, method = self.counters.component(sender), _method(method)
        started = self._open.pop((call, sender), None)
        if started is not None:
            durations = self.counters.durations.get((component, method))
            if durations is None:
                durations = self.counters.durations[component, method] = DurationHistogram()
            durations.add(time - started)
        if kind == "error":
            self.counters.errors[component, method, _code(payload)] += 1
        if method == PROMPT and port.component == "client":
            outcome = "error" if kind == "error" else _outcome(payload)
            if outcome is not None:
                self.counters.prompts[outcome] += 1

    def _note(self, entry: Entry) -> None:
        if isinstance(entry, LogEntry) and entry.event in _EVENTS:
            counter: Counter[str] = getattr(self.counters, _EVENTS[entry.event])
            counter[self.counters.component(entry.component)] += 1
        elif isinstance(entry, LossEntry):
            self.counters.lost += entry.count


def _method(method: str) -> str:
    return method if method in _METHODS else OTHER


def _code(payload: Any) -> str:
    try:
        code = decode_value(_beginning(payload), type=_ErrorCode).code
    except ValueError:
        return OTHER
    return str(code) if code in _CODES else OTHER


def _outcome(payload: Any) -> str | None:
    """The stop reason; `None` in version 2, where the turn goes on after the answer."""
    try:
        reason = decode_value(_beginning(payload), type=_StopReason).stopReason
    except ValueError:
        return OTHER
    if reason is None:
        return None
    return reason if reason in _STOP_REASONS else OTHER


def _beginning(payload: Any) -> bytes | Raw:
    """The payload; of a long one only the beginning is kept, which is not JSON."""
    return payload[0] if isinstance(payload, tuple) else payload or b"{}"
