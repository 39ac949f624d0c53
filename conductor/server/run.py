"""Serve a chain file to remote clients: start, signals, stop.

The first SIGTERM, SIGINT or SIGHUP drains: new clients are refused, running turns may end within
`timeouts.drain`, then the chains are stopped in order. A second one kills everything. Listeners
stay open during the drain, since an HTTP/1.1 client needs new TCP connections to send responses.
"""

from __future__ import annotations

import itertools
import resource
import signal
import ssl
import sys
from collections import deque
from collections.abc import AsyncIterator, Callable
from contextlib import ExitStack, asynccontextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING, Final, NoReturn

import attrs
import trio

from conductor.background_tasks import background_tasks
from conductor.chain.build import components_of, spec_of
from conductor.chain.chain import Chain
from conductor.chain.reloadable_chain import ReloadableChain
from conductor.chain.shutdown import abandoned_plugins
from conductor.chain.stdio_server import exit_now
from conductor.chain.watchdog import Watchdog, max_stop_seconds, watchdog
from conductor.chainfile.model import ChainFile
from conductor.control.process import open_control
from conductor.errors import ChainFileError
from conductor.log import get_logger
from conductor.routing.component import Component
from conductor.server.access import AccessPolicy
from conductor.server.app import AsgiApp
from conductor.server.clients import ClientRegistry
from conductor.server.limits import ServerLimits, ServerTimeouts
from conductor.server.listen.address import TcpAddress, UnixAddress, bind_tcp, listener_url
from conductor.server.listen.tcp import TcpAcceptor
from conductor.server.listen.unix import listen_unix, serve_unix
from conductor.tracing.recorder import FLIGHT_ENTRIES, Entry, TraceRecorder
from conductor.transport.base import Transport
from conductor.transport.child_process import reap_orphans
from conductor.transport.orphan_guard import start_orphan_guard
from conductor.transport.process_tree import become_subreaper, kill_descendants

if TYPE_CHECKING:
    from conductor.server.metrics.counters import MetricCounters
    from conductor.tracing.trace_writer import TraceWriter

__all__ = [
    "CurrentChain",
    "RunningServer",
    "ServerSettings",
    "chain_factory",
    "open_server",
    "serve",
]

_KILL_TIMEOUT: Final = 5.0
"""Seconds until the process is killed after a second signal."""
_SIGNALS: Final = [signal.SIGINT, signal.SIGTERM, signal.SIGHUP]

log: Final = get_logger(component="server")


@attrs.frozen
class ServerSettings:
    """Configuration of a server."""

    listen: tuple[TcpAddress | UnixAddress, ...]
    access: AccessPolicy
    tls: ssl.SSLContext | None = None
    limits: ServerLimits = attrs.field(factory=ServerLimits)
    timeouts: ServerTimeouts = attrs.field(factory=ServerTimeouts)
    metrics: TcpAddress | None = None
    """Listen address for metrics; `None`: not served."""


@attrs.define(eq=False)
class CurrentChain:
    """The chain for the next client: its file is read again after it has changed.

    Clients that are connected keep their chain. A file that has mistakes changes nothing: new
    clients get the chain from before, and the log says so, once for each change. A call costs a few
    `stat` calls.
    """

    _files: ReloadableChain

    @property
    def refused(self) -> ChainFileError | None:
        """Why no chain starts: a program in a sandbox could have written the changed files."""
        return self._files.refused

    def __call__(self) -> ChainFile:
        is_changed = self._files.is_changed
        if is_changed:
            self._files.reload()
        chain, mistakes = self._files.chain, self._files.mistakes
        assert not isinstance(chain, ChainFileError)
        if is_changed and mistakes is not None:
            problem = str(mistakes.diagnostics[0])
            log.error("changed chain file not used", problem=problem)
        elif is_changed:
            log.info("changed chain file read", file=chain.path)
        return chain


def chain_factory(
    current: CurrentChain,
    trace: TraceWriter | None = None,
    metrics: MetricCounters | None = None,
    plugins: trio.Nursery | None = None,
) -> Callable[[Transport], Chain]:
    """A function that builds the current chain for one client's transport.

    `plugins`: see `Chain.plugin_nursery`.
    """
    numbers = itertools.count(1)
    flight: deque[Entry] = deque(maxlen=FLIGHT_ENTRIES)

    def make_chain(transport: Transport) -> Chain:
        file = current()
        name = f"{file.name}/{next(numbers)}"
        recorder = TraceRecorder(name, flight=flight) if trace is None else trace.recorder(name)
        if metrics is not None:
            metrics.watch(recorder)
        return Chain(
            transport,
            spec_of(file, partial(_components, file, current.refused)),
            recorder=recorder,
            plugin_nursery=plugins,
            terminal_login="withheld",
        )

    return make_chain


def _components(file: ChainFile, refused: ChainFileError | None) -> list[Component]:
    if refused is not None:
        raise refused
    return components_of(file)


def serve(
    current: CurrentChain, settings: ServerSettings, trace: TraceWriter | None = None
) -> NoReturn:
    """Serve until a signal, then exit the process with 128 + n after signal n.

    Exits with 3 if it cannot listen.
    """
    open_control(trace)
    become_subreaper()
    start_orphan_guard()
    _raise_file_limit()
    signals: list[int] = []

    def end_rest() -> None:
        kill_descendants()
        if trace is not None:
            trace.close()

    def leave() -> NoReturn:
        end_rest()
        exit_now(128 + signals[0] if signals else 0)

    async def main() -> None:
        async with abandoned_plugins(leave) as plugins:
            await _serve(current, settings, signals, trace, plugins)

    try:
        trio.run(main)
    except OSError as exc:
        end_rest()
        with suppress(OSError):
            print(f"acp-conductor serve: {_os_error_text(exc)}", file=sys.stderr)
        exit_now(3)
    except BaseException:
        end_rest()
        raise
    leave()


async def _serve(
    current: CurrentChain,
    settings: ServerSettings,
    signals: list[int],
    trace: TraceWriter | None,
    plugins: trio.Nursery,
) -> None:
    stop_timeout = current().stop_timeout
    with (
        trio.open_signal_receiver(*_SIGNALS) as received,  # before the address is announced
        watchdog(stop_timeout, _SIGNALS) as dog,
    ):
        counters = _counters(settings, current())
        async with (
            open_server(chain_factory(current, trace, counters, plugins), settings) as server,
            background_tasks() as nursery,
        ):
            nursery.start_soon(reap_orphans)
            if counters is not None:
                await _serve_metrics(settings, server.clients, counters, nursery)
            for address in server.addresses:
                _announce(address)
            signals.append(await anext(received))
            longest = max(stop_timeout, current().stop_timeout)
            dog.end_within(settings.timeouts.drain + max_stop_seconds(longest))
            log.info("draining", clients=len(server.clients.by_id))
            nursery.start_soon(_kill_at_next_signal, received, server.clients, dog)
            await server.clients.drain()


def _counters(settings: ServerSettings, chain: ChainFile) -> MetricCounters | None:
    if settings.metrics is None:
        return None
    from conductor.server.metrics.counters import MetricCounters

    counters = MetricCounters()
    for spec in (*chain.proxies, chain.agent):
        if spec is not None:
            counters.component(spec.name)
    return counters


async def _serve_metrics(
    settings: ServerSettings,
    clients: ClientRegistry,
    counters: MetricCounters,
    nursery: trio.Nursery,
) -> None:
    """Serve metrics in the nursery. Raises `OSError` if it cannot listen."""
    from conductor.server.metrics.exposition import Exposition, MetricsListener

    assert settings.metrics is not None
    clients.turn_ended = counters.turn_ended
    serving = MetricsListener(Exposition(clients, counters).text)
    for listener in await bind_tcp(settings.metrics):
        nursery.start_soon(serving.serve, listener)
        url = listener_url(listener, secure=False)
        _announce(f"{url.removesuffix('/acp')}/metrics", "metrics at")


@attrs.frozen
class RunningServer:
    """A server with open listeners."""

    clients: ClientRegistry
    addresses: tuple[str, ...]
    """URLs with the actual ports, or `unix:PATH`."""


@asynccontextmanager
async def open_server(
    make_chain: Callable[[Transport], Chain], settings: ServerSettings
) -> AsyncIterator[RunningServer]:
    """Serve during the block. Raises `OSError` if it cannot listen."""
    clients = ClientRegistry(make_chain, settings.limits, settings.timeouts)
    with ExitStack() as stack:
        opened = await _bind_all(settings, stack)
        async with background_tasks() as nursery:
            app = AsgiApp(clients, settings.access, nursery)
            acceptor = TcpAcceptor(app, settings.limits, settings.timeouts, settings.tls)
            try:
                async with clients.open():
                    for address, listener in opened:
                        if address.startswith("unix:"):
                            nursery.start_soon(serve_unix, listener, clients)
                        else:
                            nursery.start_soon(acceptor.serve, listener)
                    yield RunningServer(clients, tuple(address for address, _ in opened))
            finally:
                acceptor.end()


async def _bind_all(
    settings: ServerSettings, stack: ExitStack
) -> list[tuple[str, trio.SocketListener]]:
    """Open all listeners; each with its address for the announcement."""
    opened = []
    for address in settings.listen:
        if isinstance(address, UnixAddress):
            opened.append((f"unix:{address.path}", stack.enter_context(listen_unix(address.path))))
            continue
        for listener in await bind_tcp(address):
            stack.callback(listener.socket.close)
            opened.append((listener_url(listener, secure=settings.tls is not None), listener))
    return opened


async def _kill_at_next_signal(
    signals: AsyncIterator[int], clients: ClientRegistry, dog: Watchdog
) -> None:
    await anext(signals)
    dog.end_within(_KILL_TIMEOUT)
    clients.kill()


def _announce(address: str, what: str = "listening on") -> None:
    """Print the address to stderr, also for programs that asked for port 0."""
    with suppress(OSError):  # stderr may be a file on a full disk
        print(f"acp-conductor: {what} {address}", file=sys.stderr, flush=True)


def _os_error_text(exc: OSError) -> str:
    where = f"{exc.filename}: " if exc.filename else ""
    return f"{where}{exc.strerror or exc}"


def _raise_file_limit() -> None:
    """Raise the soft limit on open files: each client needs a socket, and pipes per component."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        with suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
