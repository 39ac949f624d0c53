"""Clients on a Unix socket: newline-delimited JSON-RPC, one connection is one client.

Access is controlled by the socket's mode, 0600.
"""

from __future__ import annotations

import errno
import os
import select
import socket as stdlib_socket
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Final

import trio

from conductor.errors import ConnectionClosed
from conductor.jsonrpc.line_framing import LineSplitter, OverlongLine
from conductor.network.sockets import accept
from conductor.server.access import Refusal
from conductor.server.clients import ClientRegistry, Device, RemoteClient

__all__ = ["listen_unix", "serve_unix"]

_CHUNK: Final = 65536
_MODE: Final = 0o600
_GONE_CHECK_INTERVAL: Final = 1.0
"""Seconds between checks whether the client of a chain that takes no lines has gone."""


@contextmanager
def listen_unix(path: str) -> Iterator[trio.SocketListener]:
    """A listening socket at `path`, removed after the block. Raises `OSError`."""
    _remove_stale(path)
    sock = stdlib_socket.socket(stdlib_socket.AF_UNIX, stdlib_socket.SOCK_STREAM)
    try:
        os.fchmod(sock.fileno(), _MODE)  # before it has a name
        try:
            sock.bind(path)
        except OSError as exc:
            raise OSError(exc.errno, exc.strerror or str(exc), path) from None
        try:
            os.chmod(path, _MODE)
            sock.listen(128)
            sock.setblocking(False)
            yield trio.SocketListener(trio.socket.from_stdlib_socket(sock))
        finally:
            with suppress(FileNotFoundError):
                os.unlink(path)
    finally:
        sock.close()


async def serve_unix(listener: trio.SocketListener, clients: ClientRegistry) -> None:
    """Accept clients until cancelled."""
    async with trio.open_nursery() as nursery:
        while True:
            stream = await accept(listener)
            nursery.start_soon(_serve, stream, clients)


async def _serve(stream: trio.SocketStream, clients: ClientRegistry) -> None:
    async with stream:
        client = clients.admit(Device("", "unix"), "unix")
        if isinstance(client, Refusal):
            return
        limit = clients.limits.message_bytes
        with client.attachment():
            async with trio.open_nursery() as nursery:
                nursery.start_soon(_receive_lines, stream, client, limit)
                await _send_lines(stream, client)
                nursery.cancel_scope.cancel()
        client.end()


async def _send_lines(stream: trio.SocketStream, client: RemoteClient) -> None:
    with suppress(trio.BrokenResourceError, trio.ClosedResourceError):
        while lines := await client.lines.receive():
            client.record_activity()
            await stream.send_all(b"".join([line + b"\n" for line in lines]))


async def _receive_lines(stream: trio.SocketStream, client: RemoteClient, limit: int) -> None:
    splitter = LineSplitter(limit)
    with suppress(ConnectionClosed):
        while chunk := await _receive(stream):
            client.record_activity()
            lines = splitter.feed(chunk)
            await _pass_on(
                [each.head if isinstance(each, OverlongLine) else each for each in lines],
                stream,
                client,
            )
        client.lines.close_sending()


async def _pass_on(lines: list[bytes], stream: trio.SocketStream, client: RemoteClient) -> None:
    """Send lines to the chain. While it takes none, look whether the client has gone: then its
    EOF, behind bytes that are not read, is not waited for."""
    while True:
        with trio.move_on_after(_GONE_CHECK_INTERVAL):
            await client.lines.send(lines)
            return
        lines = []  # the channel keeps what is unsent
        if _is_closed(stream):
            client.lines.close()


def _is_closed(stream: trio.SocketStream) -> bool:
    """Whether the other end is closed, in both directions."""
    poller = select.poll()
    poller.register(stream.socket.fileno(), 0)
    return bool(poller.poll(0))  # POLLERR or POLLHUP, which need not be requested


async def _receive(stream: trio.SocketStream) -> bytes:
    """The next bytes; `b""` at EOF, also of a client that has left messages unread (a reset)."""
    try:
        return bytes(await stream.receive_some(_CHUNK))
    except trio.BrokenResourceError:
        return b""


def _remove_stale(path: str) -> None:
    """Remove the socket of a dead server. Raises `OSError` if another server uses it."""
    try:
        if not stat.S_ISSOCK(os.stat(path, follow_symlinks=False).st_mode):
            raise FileExistsError(errno.EEXIST, "exists and is not a socket", path)
    except FileNotFoundError:
        return
    with stdlib_socket.socket(stdlib_socket.AF_UNIX, stdlib_socket.SOCK_STREAM) as probe:
        try:
            probe.connect(path)
        except ConnectionRefusedError:
            os.unlink(path)
            return
    raise OSError(errno.EADDRINUSE, "another server listens here", path)
