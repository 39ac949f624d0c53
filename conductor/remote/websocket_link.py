"""Carries a component's messages over a WebSocket: one message per text frame, both ways; with a
server of ours, numbered, so that a connection which is cut goes on with another one (`resuming`).
"""

from __future__ import annotations

from functools import partial
from http.cookiejar import CookieJar

import trio

from conductor.errors import ConnectionClosed
from conductor.remote.address import Address
from conductor.remote.link import RemoteLink
from conductor.remote.network import warn_of_plain_credentials
from conductor.remote.resuming import OFFER, Agreement, go_on
from conductor.remote.socket import Socket, SocketClosed
from conductor.remote.websocket import keep_asking, open_socket

__all__ = ["carry", "relay"]


async def carry(
    link: RemoteLink, address: Address, cookies: CookieJar, ping_timeout: float
) -> None:
    """Be the connection with the WebSocket at this address."""
    warn_of_plain_credentials(address)
    limit = link.max_message_bytes
    connect = partial(open_socket, address, cookies, ping_timeout, limit)
    async with connect(OFFER) as socket:
        link.reached = True
        agreement = Agreement.of(socket.headers)
        if agreement is not None:
            await go_on(socket, agreement, link, connect, ping_timeout)
            return
        async with trio.open_nursery() as nursery:
            nursery.start_soon(keep_asking, socket, ping_timeout)
            await relay(socket, link)
            nursery.cancel_scope.cancel()
        link.end(socket.how_it_ended(link.where))


async def relay(socket: Socket, link: RemoteLink) -> None:
    """Move messages both ways until the socket is closed."""

    async def send() -> None:
        try:
            while lines := await link.lines.receive():
                for line in lines:
                    await socket.send(line.decode(errors="replace"))
            await socket.close()
        except SocketClosed:
            return  # whoever receives knows

    async with trio.open_nursery() as nursery:
        nursery.start_soon(send)
        while (text := await socket.receive()) is not None:
            try:
                await link.lines.send([text.encode()])
            except ConnectionClosed:
                break
        nursery.cancel_scope.cancel()
