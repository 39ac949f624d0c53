"""Serve a chain file to remote clients, from the first listener to the last chain.

The first SIGTERM (SIGINT, SIGHUP) drains: no new clients, turns end within a time, then the chains
end in order. A second one ends everything now. Listeners stay open while turns end, since a client
that speaks HTTP/1.1 needs new TCP connections to answer what it is asked.
"""

from __future__ import annotations

import gc
import resource
import signal
import ssl
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import ExitStack, asynccontextmanager, suppress
from functools import partial
from typing import Final, Literal, NoReturn

import attrs
import trio

from conductor.chain import Chain
from conductor.chainfile.model import ChainFile
from conductor.components.base import Component
from conductor.components.build import build
from conductor.endpoint import background
from conductor.log import get_logger
from conductor.server.access import Access
from conductor.server.addresses import TcpAddress, UnixAddress, bind, shown
from conductor.server.app import App
from conductor.server.bounds import Bounds, Patience
from conductor.server.directory import Directory
from conductor.server.forwarding import Forwarding
from conductor.server.listening import Doorman
from conductor.server.remote_clients import RemoteClients
from conductor.server.unix import listen_unix, serve_unix
from conductor.serving import exit_now
from conductor.transport.base import Transport
from conductor.transport.guard import start_guard
from conductor.transport.orphans import reap_orphans
from conductor.transport.process import adopt_orphans, kill_descendants
from conductor.watchdog import Watchdog, longest_stop, watchdog

__all__ = ["Server", "Settings", "chain_maker", "open_server", "serve"]

_KILL: Final = 5.0
"""Seconds that the server may go on after a second signal."""
_SIGNALS: Final = [signal.SIGINT, signal.SIGTERM, signal.SIGHUP]

log = get_logger(component="server")


@attrs.frozen
class Settings:
    """How a chain is served."""

    listen: tuple[TcpAddress | UnixAddress, ...]
    access: Access
    tls: ssl.SSLContext | None = None
    bounds: Bounds = attrs.field(factory=Bounds)
    patience: Patience = attrs.field(factory=Patience)
    directory: Directory | None = None


def chain_maker(file: ChainFile) -> Callable[[Transport], Chain]:
    """What makes a chain of the file for each client."""
    specs = file.flat()
    mode: Literal["agent", "proxy"] = "proxy" if file.agent is None else "agent"
    stop_timeout = max((spec.stop_timeout for spec in specs), default=5.0)

    imported = False

    def make_components() -> list[Component]:
        nonlocal imported
        components = build(specs, mode=mode, mcp_bridge=file.mcp_bridge, limits=file.limits)
        if not imported:
            # The modules are all there now and stay: a full collection without their 100,000
            # objects does not make every client wait for 60 ms.
            imported = True
            gc.freeze()
        return components

    def make_chain(transport: Transport) -> Chain:
        return Chain(
            transport,
            make_components,
            mode=mode,
            limits=file.limits,
            stop_timeout=stop_timeout,
            bridged=False,  # the bridge knows, and says, what the agent can be given
        )

    return make_chain


def serve(file: ChainFile, settings: Settings) -> NoReturn:
    """Serve until a signal ends it, then exit the process: 128 + n after signal n."""
    adopt_orphans()
    start_guard()
    _raise_file_limit()
    signals: list[int] = []
    try:
        trio.run(_serve, file, settings, signals)
    except OSError as exc:
        with suppress(OSError):
            print(f"acp-conductor serve: {_why(exc)}", file=sys.stderr)
        exit_now(3)
    finally:
        kill_descendants()
    exit_now(128 + signals[0] if signals else 0)


async def _serve(file: ChainFile, settings: Settings, signals: list[int]) -> None:
    stop_timeout = max((spec.stop_timeout for spec in file.flat()), default=5.0)
    with (
        trio.open_signal_receiver(*_SIGNALS) as received,  # before anybody is told that we are here
        watchdog(stop_timeout, _SIGNALS) as dog,
    ):
        async with open_server(chain_maker(file), settings) as server, background() as nursery:
            nursery.start_soon(reap_orphans)
            for address in server.addresses:
                _say(address)
            signals.append(await anext(received))
            dog.end_within(settings.patience.drain + longest_stop(stop_timeout))
            log.info("draining", clients=len(server.clients.by_id))
            nursery.start_soon(_kill_at_next, received, server.clients, dog)
            await server.clients.drain()


@attrs.frozen
class Server:
    """A server that listens."""

    clients: RemoteClients
    addresses: tuple[str, ...]
    """As URLs, or `unix:PATH`, with the real ports."""


@asynccontextmanager
async def open_server(
    make_chain: Callable[[Transport], Chain], settings: Settings
) -> AsyncIterator[Server]:
    """Serve for as long as the block lasts. Raises `OSError` where it cannot listen."""
    directory = settings.directory
    clients = RemoteClients(make_chain, settings.bounds, settings.patience, directory=directory)
    with ExitStack() as stack, clients.shares.measured():
        opened = await _listen(settings, stack)
        async with _joined(directory) as forwarding, background() as nursery:
            app = App(clients, settings.access, nursery, forwarding)
            doorman = Doorman(app, settings.bounds, settings.patience, settings.tls)
            local = "unix socket" if settings.access.authenticates else ""
            take_local = partial(serve_unix, clients=clients, principal=local)
            try:
                async with clients.open():
                    for address, listener in opened:
                        if address.startswith("unix:"):
                            nursery.start_soon(take_local, listener)
                        else:
                            nursery.start_soon(doorman.serve, listener)
                    yield Server(clients, tuple(address for address, _ in opened))
            finally:
                doorman.end()


async def _listen(settings: Settings, stack: ExitStack) -> list[tuple[str, trio.SocketListener]]:
    """Everything that is to be listened on, with the address that is told."""
    opened = []
    for address in settings.listen:
        if isinstance(address, UnixAddress):
            opened.append((f"unix:{address.path}", stack.enter_context(listen_unix(address.path))))
            continue
        for listener in await bind(address):
            stack.callback(listener.socket.close)
            opened.append((shown(listener, secure=settings.tls is not None), listener))
    return opened


@asynccontextmanager
async def _joined(directory: Directory | None) -> AsyncIterator[Forwarding | None]:
    """One of several nodes for as long as the block lasts, if there is a directory of them."""
    if directory is None:
        yield None
        return
    async with background() as nursery:
        await nursery.start(directory.run)
        forwarding = Forwarding(directory)
        async with forwarding.open():
            yield forwarding


async def _kill_at_next(signals: AsyncIterator[int], clients: RemoteClients, dog: Watchdog) -> None:
    await anext(signals)
    dog.end_within(_KILL)
    clients.kill()


def _say(address: str) -> None:
    """For people, and for programs that asked for port 0."""
    with suppress(OSError):  # stderr may be a file on a full disk
        print(f"acp-conductor: listening on {address}", file=sys.stderr, flush=True)


def _why(exc: OSError) -> str:
    where = f"{exc.filename}: " if exc.filename else ""
    return f"{where}{exc.strerror or exc}"


def _raise_file_limit() -> None:
    """Every client is a socket, and more where its components are processes."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        with suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
