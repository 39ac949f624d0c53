"""Client end of a WebSocket: one message per text frame; resumable with a conductor as the server
(`resume_client`).
"""

from __future__ import annotations

from functools import partial
from http.cookiejar import CookieJar

import trio

from conductor.errors import ConnectionClosed
from conductor.network.address import RemoteAddress
from conductor.network.tcp import warn_about_plaintext_credentials
from conductor.network.websocket import WebSocket, WebSocketClosed
from conductor.remote.resume_client import RESUME_OFFER, ResumeTerms, relay_resumable
from conductor.remote.transport import RemoteTransport
from conductor.remote.websocket_connection import open_websocket, send_pings

__all__ = ["relay_messages", "run_transport"]


async def run_transport(
    transport: RemoteTransport, address: RemoteAddress, cookies: CookieJar, ping_timeout: float
) -> None:
    """Run a connection to the endpoint until it ends. Raises `Unreachable`."""
    warn_about_plaintext_credentials(address)
    limit = transport.max_message_bytes
    connect = partial(open_websocket, address, cookies, ping_timeout, limit)
    async with connect(RESUME_OFFER) as socket:
        transport.reached = True
        terms = ResumeTerms.from_headers(socket.headers)
        if terms is not None:
            await relay_resumable(socket, terms, transport, connect, ping_timeout)
            return
        async with trio.open_nursery() as nursery:
            nursery.start_soon(send_pings, socket, ping_timeout)
            await relay_messages(socket, transport)
            nursery.cancel_scope.cancel()
        transport.end(socket.end_reason(transport.location))


async def relay_messages(socket: WebSocket, transport: RemoteTransport) -> None:
    """Relay messages in both directions until the socket is closed."""

    async def send() -> None:
        try:
            while lines := await transport.lines.receive():
                for line in lines:
                    await socket.send(line.decode(errors="replace"))
            await socket.close()
        except WebSocketClosed:
            return  # handled by the receiving loop

    async with trio.open_nursery() as nursery:
        nursery.start_soon(send)
        while (text := await socket.receive()) is not None:
            try:
                await transport.lines.send([text.encode()])
            except ConnectionClosed:
                break
        nursery.cancel_scope.cancel()
