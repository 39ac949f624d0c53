"""The conductor's WebSocket client and server as echo peers for Autobahn's test suite.

    autobahn_echo.py              serves, and prints where
    autobahn_echo.py ws://…       is the client of every case that there is, then asks for reports

Behind the server's end is an echo instead of a chain, with all that carries lines to it.
"""

from __future__ import annotations

import sys
from contextlib import suppress
from http.cookiejar import CookieJar

import trio

from conductor.chain.chain import Chain
from conductor.chain.components import ChainSpec
from conductor.chain.shutdown import Ending
from conductor.errors import ConnectionClosed
from conductor.network.address import RemoteAddress
from conductor.network.websocket import WebSocketClosed
from conductor.remote.websocket_connection import open_websocket
from conductor.server.access import AccessPolicy
from conductor.server.limits import ServerLimits
from conductor.server.listen.address import TcpAddress
from conductor.server.run import ServerSettings, open_server
from conductor.transport.base import Transport
from conductor.transport.memory import LineChannel

LIMIT = 64 * 1024 * 1024
PATIENCE = 30.0


class Echo(Chain):
    def __init__(self, transport: Transport, spec: ChainSpec) -> None:
        super().__init__(transport, spec)
        self._scope = trio.CancelScope()

    async def run(self) -> Ending:
        lines = LineChannel(self.transport)
        with self._scope, suppress(ConnectionClosed):
            while some := await lines.receive():
                await lines.send(some)
        return Ending("client")

    def stop(self) -> None:
        self._scope.cancel()


async def serve() -> None:
    settings = ServerSettings(
        (TcpAddress("127.0.0.1", 0),), AccessPolicy(), limits=ServerLimits(message_bytes=LIMIT)
    )
    async with open_server(lambda transport: Echo(transport, ChainSpec(list)), settings) as server:
        print(server.addresses[0].replace("http", "ws"), flush=True)
        await trio.sleep_forever()


async def be_client(url: str) -> None:
    (count,) = await talk(f"{url}/getCaseCount")
    for case in range(1, int(count) + 1):
        with trio.fail_after(PATIENCE):
            await talk(f"{url}/runCase?case={case}&agent=ours", echo=True)
    await talk(f"{url}/updateReports?agent=ours")


async def talk(url: str, *, echo: bool = False) -> list[str]:
    """All text received at this address."""
    record_activity = []
    async with open_websocket(RemoteAddress.of(url, {}), CookieJar(), PATIENCE, LIMIT) as socket:
        while (text := await socket.receive()) is not None:
            record_activity.append(text)
            if echo:
                with suppress(WebSocketClosed):  # the receiver knows the end
                    await socket.send(text)
    return record_activity


if __name__ == "__main__":
    trio.run(be_client, sys.argv[1]) if sys.argv[1:] else trio.run(serve)
