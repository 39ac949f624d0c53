"""The metrics of a server as Prometheus text, and the listener of `--metrics`.

The listener answers `GET /metrics` and `GET /healthz` over HTTP/1.1, in the event loop: an answer
of `/healthz` tells that it runs. One request per connection. An error while the metrics are written
ends this request, not the server.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from itertools import accumulate
from typing import Final

import attrs
import h11
import trio
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
from conductor.errors import exception_location
from conductor.log import get_logger
from conductor.network.sockets import accept
from conductor.server.clients import ClientRegistry, RemoteClient
from conductor.server.metrics.counters import BUCKETS, OUTCOMES, MetricCounters

__all__ = ["Exposition", "MetricsListener"]

_PREFIX: Final = "acp_conductor_"
_TIMEOUT: Final = 10.0
"""Seconds for a request and its response."""
_MAX_CONNECTIONS: Final = 20
_MAX_HEAD: Final = 16 * 1024
_CHUNK: Final = 4096
_TEXT: Final = "text/plain; charset=utf-8"

log: Final = get_logger(component="server")


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


@attrs.define(eq=False)
class MetricsListener:
    """Answers requests; `text` returns content type and body for an `Accept` header."""

    text: Callable[[str], tuple[str, bytes]]
    _open: int = attrs.field(default=0, init=False)

    async def serve(self, listener: trio.SocketListener) -> None:
        """Accept connections until cancelled; then the listener is closed."""
        async with listener, trio.open_nursery() as nursery:
            while True:
                stream = await accept(listener)
                if self._open >= _MAX_CONNECTIONS:
                    await trio.aclose_forcefully(stream)
                    continue
                self._open += 1
                nursery.start_soon(self._handle, stream)

    async def _handle(self, stream: trio.SocketStream) -> None:
        try:
            with (
                suppress(trio.BrokenResourceError, trio.ClosedResourceError, h11.ProtocolError),
                trio.move_on_after(_TIMEOUT),
            ):
                await self._answer(stream)
        finally:
            self._open -= 1
            await trio.aclose_forcefully(stream)

    async def _answer(self, stream: trio.SocketStream) -> None:
        http = h11.Connection(h11.SERVER, max_incomplete_event_size=_MAX_HEAD)
        while (event := http.next_event()) is h11.NEED_DATA:
            http.receive_data(await stream.receive_some(_CHUNK))
        if not isinstance(event, h11.Request):
            return
        status, content_type, body = self._response(event)
        headers = [
            ("content-type", content_type),
            ("content-length", str(len(body))),
            ("cache-control", "no-store"),
            ("connection", "close"),
        ]
        parts = [
            http.send(h11.Response(status_code=status, headers=headers)),
            http.send(h11.Data(b"" if event.method == b"HEAD" else body)),
            http.send(h11.EndOfMessage()),
        ]
        await stream.send_all(b"".join(part for part in parts if part))
        await stream.send_eof()

    def _response(self, request: h11.Request) -> tuple[int, str, bytes]:
        path = bytes(request.target).partition(b"?")[0]
        if request.method not in (b"GET", b"HEAD"):
            return 405, _TEXT, b"only GET\n"
        if path == b"/healthz":
            return 200, _TEXT, b"ok\n"
        if path == b"/metrics":
            accepted = [value for name, value in request.headers if name == b"accept"]
            try:
                return 200, *self.text(b",".join(accepted).decode("latin-1"))
            except Exception as exc:  # prometheus_client cannot read some values of `Accept`
                log.error("metrics not written", **exception_location(exc))
                return 500, _TEXT, b"the log of the server has the error\n"
        return 404, _TEXT, b"there are /metrics and /healthz\n"


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
