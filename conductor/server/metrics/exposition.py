"""The metrics of a server as Prometheus text."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from itertools import accumulate
from typing import Final

import attrs
from prometheus_client import CollectorRegistry, PlatformCollector, ProcessCollector
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    InfoMetricFamily,
    Metric,
)
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector

from conductor import __version__
from conductor.server.clients import ClientRegistry, RemoteClient
from conductor.server.metrics.counters import BUCKETS, OUTCOMES, MetricCounters

__all__ = ["Exposition"]

_PREFIX: Final = "acp_conductor_"


@attrs.define(eq=False)
class Exposition(Collector):
    """Collector and text of `/metrics`."""

    clients: ClientRegistry
    counters: MetricCounters
    _registry: CollectorRegistry = attrs.field(factory=CollectorRegistry, init=False)

    def __attrs_post_init__(self) -> None:
        for collector in (self, ProcessCollector(registry=None), PlatformCollector(registry=None)):
            self._registry.register(collector)

    def text(self, accept: str) -> tuple[str, bytes]:
        """Content type and body, in the format that `Accept` asks for."""
        encode, content_type = choose_encoder(accept)
        return content_type, encode(self._registry)

    def collect(self) -> Iterator[Metric]:
        yield InfoMetricFamily(f"{_PREFIX}build", "Version.", {"version": __version__})
        yield from self._now()
        counters = self.counters
        prompts = _from_zero(OUTCOMES, counters.prompts)
        yield _counter("prompts", "Turns that have ended, by stop reason.", "outcome", prompts)
        yield from self._traffic()
        yield self._durations()
        errors = CounterMetricFamily(
            f"{_PREFIX}errors",
            "Error responses, by the component that sent them.",
            labels=["component", "method", "code"],
        )
        for labels, count in counters.errors.items():
            errors.add_metric(labels, count)
        yield errors
        for name, help, counted in (
            ("component_failures", "Components that ended or hung.", counters.failures),
            ("component_restarts", "Components that run again.", counters.restarts),
            ("start_failures", "Starts of a chain that failed.", counters.start_failures),
        ):
            yield _counter(name, help, "component", _from_zero(counters.components, counted))
        yield CounterMetricFamily(
            f"{_PREFIX}trace_entries_lost", "Dropped entries of --trace and --otel.", counters.lost
        )

    def _now(self) -> Iterator[Metric]:
        """Gauges of the current state of clients and chains."""
        clients = list(self.clients.by_id.values())
        states = Counter({"attached": 0, "detached": 0})
        states.update("attached" if each.attached else "detached" for each in clients)
        yield _gauge("clients", "Clients; detached ones may return.", "state", states)
        chains = Counter({"starting": 0, "running": 0})
        chains.update(
            "running" if each.chain.initialized.is_set() else "starting" for each in clients
        )
        yield _gauge("chains", "Open chains.", "state", chains)
        sessions = sum(len(each.chain.client.session_log.sessions) for each in clients)
        yield _single("sessions", "Open sessions.", sessions)
        yield _single(
            "turns_running", "Running prompt turns.", sum(each.running_turns for each in clients)
        )
        queued: Counter[str] = Counter({"client": 0})
        held = 0
        for each in clients:
            queued.update(_queued(each, self.counters.component))
            held += each.chain.back_pressure.is_held_back
        help = "Bytes that wait to be read by a component, or by the client."
        yield _gauge("queued_bytes", help, "component", queued)
        yield _single(
            "chains_held_back", "Chains in which back-pressure stops the client or the agent.", held
        )
        yield _single("draining", "1 while the server shuts down.", int(self.clients.draining))

    def _traffic(self) -> Iterator[Metric]:
        labels = ["component", "toward", "kind", "method"]
        messages = CounterMetricFamily(
            f"{_PREFIX}messages", "Messages, by the component that received them.", labels=labels
        )
        size = CounterMetricFamily(
            f"{_PREFIX}message_bytes", "Bytes of params, results and errors.", labels=labels
        )
        for key, traffic in self.counters.traffic.items():
            messages.add_metric(key, traffic.messages)
            size.add_metric(key, traffic.bytes)
        yield from (messages, size)

    def _durations(self) -> Metric:
        family = HistogramMetricFamily(
            f"{_PREFIX}request_duration_seconds",
            "Time from a request to its response on one hop, by the component that was asked.",
            labels=["component", "method"],
        )
        bounds = [*(str(each) for each in BUCKETS), "+Inf"]
        for labels, durations in self.counters.durations.items():
            buckets = list(zip(bounds, accumulate(durations.counts), strict=True))
            family.add_metric(labels, buckets, durations.total)
        return family


def _queued(client: RemoteClient, label: Callable[[str], str]) -> Counter[str]:
    connection = client.chain.client.connection
    found = Counter({"client": 0 if connection is None else connection.write_buffer.size})
    for component in client.chain.components:
        found[label(component.name)] += component.backlog()
    return found


def _counter(name: str, help: str, label: str, counts: Counter[str]) -> Metric:
    family = CounterMetricFamily(_PREFIX + name, help, labels=[label])
    return _filled(family, counts.items())


def _from_zero(labels: Iterable[str], counts: Counter[str]) -> Counter[str]:
    """The counts, with 0 for other labels: Prometheus does not see the first event of a series that
    begins with it."""
    return Counter({**dict.fromkeys(sorted(labels), 0), **counts})


def _gauge(name: str, help: str, label: str, counts: Counter[str]) -> Metric:
    family = GaugeMetricFamily(_PREFIX + name, help, labels=[label])
    return _filled(family, counts.items())


def _filled(
    family: CounterMetricFamily | GaugeMetricFamily, counts: Iterable[tuple[str, int]]
) -> Metric:
    for value, count in counts:
        family.add_metric([value], count)
    return family


def _single(name: str, help: str, value: int) -> Metric:
    return GaugeMetricFamily(_PREFIX + name, help, value=value)
