"""Carries a component's lines over a Unix stream socket: the bytes are those of a program's pipes.

Both directions end independently, as those of pipes do.
"""

from __future__ import annotations

import trio

from conductor.errors import ConnectionClosed
from conductor.remote.link import RemoteLink
from conductor.remote.network import Unreachable, what_the_os_says
from conductor.transport.base import CHUNK

__all__ = ["carry"]


async def carry(link: RemoteLink) -> None:
    """Be the connection with the socket at the path `link.where`."""
    try:
        stream = await trio.open_unix_socket(link.where)
    except OSError as exc:
        reason = what_the_os_says(exc)
        raise Unreachable(f"could not be reached at {link.where}: {reason}") from exc
    link.reached = True
    async with stream, trio.open_nursery() as nursery:
        nursery.start_soon(_send, link, stream)
        await _receive(link, stream)
        nursery.cancel_scope.cancel()


async def _receive(link: RemoteLink, stream: trio.SocketStream) -> None:
    try:
        while chunk := await stream.receive_some(CHUNK):
            await _put(link, chunk)
    except trio.BrokenResourceError:
        link.lost("it was cut")
        return
    except ConnectionClosed:
        return
    link.end(f"closed the connection at {link.where}")


async def _put(link: RemoteLink, chunk: bytes) -> None:
    rest = memoryview(chunk)
    while rest:
        written = link.network.write_now((rest,))
        rest = rest[written:]
        if rest:
            await link.network.wait_writable()


async def _send(link: RemoteLink, stream: trio.SocketStream) -> None:
    try:
        while chunk := await link.network.receive():
            await stream.send_all(chunk)
        await stream.send_eof()
    except trio.BrokenResourceError:
        return  # whoever receives knows
