"""Incomplete WebSocket messages, over HTTP/1.1 and HTTP/2."""

from __future__ import annotations

import json
import zlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any

import attrs
import h2.config
import h2.connection
import h2.events
import pytest
import trio
from support.raw_json import compact
from support.server_clients import ask, connect, initialize, port_of, serving, upgrade, websocket
from wsproto.connection import Connection, ConnectionType
from wsproto.events import CloseConnection, TextMessage

from conductor.server.http.request_response import ReceiveBudget
from conductor.server.limits import ServerLimits, ServerTimeouts
from conductor.server.run import RunningServer
from conductor.server.websocket.partial_message import TOO_MUCH, TOO_SLOW, PartialMessage

DEFLATE = "permessage-deflate; client_max_window_bits"
KIB = 1024


@attrs.define(eq=False)
class TcpPeer:
    """A client that writes the frames of a WebSocket itself."""

    stream: trio.SocketStream
    socket: Connection = attrs.field(factory=lambda: Connection(ConnectionType.CLIENT))
    headers: dict[bytes, bytes] = attrs.field(factory=dict)

    async def send(self, text: str, *, is_last: bool = True) -> None:
        await self.write(self.socket.send(TextMessage(text, message_finished=is_last)))

    async def write(self, data: bytes) -> None:
        await self.stream.send_all(data)

    async def read(self) -> bytes | None:
        """Bytes of the WebSocket; None at the end."""
        return bytes(await self.stream.receive_some()) or None

    async def next(self) -> Any:
        """The next message, or how the WebSocket was closed; None if it was cut."""
        while True:
            for event in self.socket.events():
                if isinstance(event, CloseConnection):
                    return event.code, event.reason
                if isinstance(event, TextMessage):
                    return json.loads(event.data)
            data = await self.read()
            if data is None:
                return None
            self.socket.receive_data(data)


@attrs.define(eq=False)
class PeerOverHttp2(TcpPeer):
    h2: h2.connection.H2Connection = attrs.field(
        factory=lambda: h2.connection.H2Connection(h2.config.H2Configuration(client_side=True))
    )

    async def open(self, server: RunningServer) -> None:
        self.h2.initiate_connection()
        await self.flush()
        while not self.h2.remote_settings.enable_connect_protocol:
            self.h2.receive_data(await self.stream.receive_some())
        fields = [
            (":method", "CONNECT"),
            (":protocol", "websocket"),
            (":scheme", "http"),
            (":path", "/acp"),
            (":authority", f"127.0.0.1:{port_of(server)}"),
            ("sec-websocket-version", "13"),
            ("sec-websocket-extensions", DEFLATE),
        ]
        self.h2.send_headers(1, fields)
        await self.flush()
        while not self.headers:
            await self.read()

    async def flush(self) -> None:
        await self.stream.send_all(self.h2.data_to_send())

    async def write(self, data: bytes) -> None:
        for start in range(0, len(data), 16 * KIB):
            piece = data[start : start + 16 * KIB]
            while self.h2.local_flow_control_window(1) < len(piece):
                if (told := await self.read()) is None:
                    return
                self.socket.receive_data(told)
            self.h2.send_data(1, piece)
            await self.flush()

    async def read(self) -> bytes | None:
        found = b""
        received = await self.stream.receive_some()
        if not received:
            return None
        for event in self.h2.receive_data(received):
            if isinstance(event, h2.events.ResponseReceived):
                self.headers = dict(event.headers)
            if isinstance(event, h2.events.DataReceived):
                self.h2.acknowledge_received_data(event.flow_controlled_length, 1)
                found += event.data
        await self.flush()
        return found


@asynccontextmanager
async def over_http_1(server: RunningServer) -> AsyncIterator[TcpPeer]:
    async with await upgrade(server, **{"Sec-WebSocket-Extensions": DEFLATE}) as stream:
        head = b""
        while b"\r\n\r\n" not in head:
            head += await stream.receive_some()
        lines = [line.partition(b": ") for line in head.split(b"\r\n")[1:]]
        yield TcpPeer(stream, headers={name.lower(): value for name, _, value in lines})


@asynccontextmanager
async def over_http_2(server: RunningServer) -> AsyncIterator[TcpPeer]:
    async with await connect(server) as stream:
        peer = PeerOverHttp2(stream)
        await peer.open(server)
        yield peer


WAYS = pytest.mark.parametrize("way", [over_http_1, over_http_2])


@WAYS
async def test_fragments_that_are_complete_are_a_message(tmp_path, way):
    async with serving(tmp_path) as server, way(server) as peer:
        text = compact(initialize())
        for character in text[:-1]:
            await peer.send(character, is_last=False)
        await peer.send(text[-1])
        answer = await peer.next()

    assert answer["id"] == 0


@WAYS
async def test_a_message_that_is_not_completed_in_time_ends_its_websocket(tmp_path, way):
    async with serving(tmp_path, timeouts={"headers": 0.1}) as server, way(server) as peer:
        await peer.send(compact(initialize()))
        await peer.next()
        await peer.send("{", is_last=False)

        assert await peer.next() == TOO_SLOW


@WAYS
async def test_incomplete_messages_of_one_client_are_limited(tmp_path, way):
    limits = {"body_bytes": 4000 * KIB, "body_bytes_each": 1000 * KIB}
    async with serving(tmp_path, limits=limits) as server, websocket(server) as other:
        await ask(other, initialize())
        for _ in range(3):  # what was given up is not counted any more
            async with way(server) as peer:
                for _ in range(9):
                    await peer.send("x" * 100 * KIB, is_last=False)
                with suppress(trio.BrokenResourceError):  # it may be closed at the first of them
                    for _ in range(3):
                        await peer.send("x" * 100 * KIB, is_last=False)
                assert await peer.next() == TOO_MUCH
        answer = await ask(other, {**initialize(1), "method": "session/list"})

    assert answer["id"] == 1


@WAYS
async def test_incomplete_messages_of_all_clients_are_limited(tmp_path, way):
    """Fourteen clients held 941 MiB with a limit of 256 MiB each."""
    limits = {"body_bytes": 1000 * KIB, "body_bytes_each": 1000 * KIB}
    async with serving(tmp_path, limits=limits) as server, way(server) as one, way(server) as two:
        for _ in range(6):
            await one.send("x" * 100 * KIB, is_last=False)
        with suppress(trio.BrokenResourceError):  # it may be closed before the last of them
            for _ in range(6):
                await two.send("x" * 100 * KIB, is_last=False)
        closed = await two.next()
        await one.send("", is_last=True)  # it goes on: what it says is not JSON
        answer = await one.next()

    assert closed == TOO_MUCH
    assert answer["error"]["code"] == -32700


@WAYS
async def test_nothing_is_compressed(tmp_path, way):
    """A peer could have 300 kB become 300 MB before their length is known."""
    limits = {"message_bytes": 100 * KIB}
    async with serving(tmp_path, limits=limits) as server, way(server) as peer:
        bomb = zlib.compress(b" " * 1000 * KIB)
        frame = Connection(ConnectionType.CLIENT).send(TextMessage(" " * len(bomb)))
        await peer.write(bytes([frame[0] | 0x40]) + frame[1:])  # RSV1: it is compressed
        closed = await peer.next()

    assert b"sec-websocket-extensions" not in peer.headers
    assert closed is None or closed[0] == 1002


async def test_many_small_fragments_count_as_what_they_take():
    partial_message = PartialMessage(
        ReceiveBudget(), ServerLimits(body_bytes_each=100 * KIB), ServerTimeouts(), "ann"
    )
    fragments = 100 * KIB // 60  # a string of one character takes 60 bytes, up to Python 3.11 76
    answers = [partial_message.add("€", is_last=False) for _ in range(fragments)]
    assert answers[-1] == TOO_MUCH

    partial_message.done()
    assert (partial_message.budget.bytes, dict(partial_message.budget.of)) == (0, {})


async def test_a_fragment_that_comes_in_time_gives_the_next_one_its_time(autojump_clock):
    partial_message = PartialMessage(
        ReceiveBudget(), ServerLimits(), ServerTimeouts(headers=10), "ann"
    )
    closed: list[float] = []

    async def close(_: Any) -> None:
        closed.append(trio.current_time() - began)

    began = trio.current_time()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(partial_message.watch, close)
        for _ in range(5):
            partial_message.add("x", is_last=False)
            await trio.sleep(9)
        partial_message.add("x", is_last=True)
        await trio.sleep(100)  # it waits for the chain, not for the peer
        partial_message.done()
        partial_message.add("x", is_last=False)
        await trio.sleep(11)

    assert closed == [5 * 9 + 100 + 10]
