"""Cases of the Autobahn test suite against the WebSocket client.

The server answers `initialize` with the bytes of the case, and keeps every frame that it gets.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial

import attrs
import pytest
import trio
from support.raw_json import dumps
from support.remote_agents import reach

from conductor.proxy import RequestError

from .frames import BINARY, CLOSE, CONTINUATION, PING, PONG, TEXT, fragments, read_frames
from .frames import close as masked_close
from .frames import frame as masked_frame

PATIENCE = 10.0

frame = partial(masked_frame, masked=False)
close = partial(masked_close, masked=False)
fragmented = partial(fragments, masked=False)

ANSWER = dumps(
    {
        "jsonrpc": "2.0",
        "id": 1,
        "result": {"protocolVersion": 1, "agentInfo": {"name": "κόσμε", "version": "1"}},
    },
)


@attrs.define
class Server:
    """`url` is where it listens; `got` the frames after `initialize`, once `done`."""

    url: str = ""
    got: list[tuple[int, bytes]] = attrs.field(factory=list)
    done: trio.Event = attrs.field(factory=trio.Event)


@asynccontextmanager
async def serving(answer: bytes, *, chop: int = 0, hang_up: bool = False) -> AsyncIterator[Server]:
    server = Server()

    async def serve(stream: trio.SocketStream) -> None:
        head = b""
        while not head.endswith(b"\r\n\r\n"):
            head += await stream.receive_some(1)
        lines = dict(line.split(b": ", 1) for line in head.lower().split(b"\r\n") if b": " in line)
        key = head[head.lower().index(lines[b"sec-websocket-key"]) :].split(b"\r\n")[0]
        digest = hashlib.sha1(key + b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11").digest()
        await stream.send_all(
            b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
            b"Sec-WebSocket-Accept: %b\r\n\r\n" % base64.b64encode(digest)
        )
        unread = b""
        while not read_frames(unread):
            unread += await stream.receive_some()
        for start in range(0, len(answer), chop or len(answer)):
            await stream.send_all(answer[start : start + (chop or len(answer))])
        if hang_up:
            await stream.send_eof()
        try:
            async for data in stream:
                unread += data
        except trio.BrokenResourceError:
            pass
        server.got = read_frames(unread)[1:]
        server.done.set()

    async with trio.open_nursery() as nursery:
        (listener,) = await nursery.start(partial(trio.serve_tcp, serve, 0, host="127.0.0.1"))
        server.url = f"ws://127.0.0.1:{listener.socket.getsockname()[1]}"
        with trio.fail_after(PATIENCE):
            yield server
        nursery.cancel_scope.cancel()


def split(data: bytes, size: int) -> list[bytes]:
    return [data[start : start + size] for start in range(0, len(data), size)]


RIGHT = {
    "1.1.3 126 bytes and more": frame(TEXT, ANSWER.ljust(126)),
    "1.1.8 70000 bytes": frame(TEXT, ANSWER.ljust(70000)),
    "1.2.1 binary is ignored (RFD)": frame(BINARY, b"\x00\xff") + frame(TEXT, ANSWER),
    "2.7 a pong nobody asked for": frame(PONG, b"x") + frame(TEXT, ANSWER),
    "5.3 fragments": fragmented(*split(ANSWER, 40)),
    "6.1.2 empty fragments": fragmented(b"", ANSWER, b""),
    "6.2.3 a fragment per byte": fragmented(*split(ANSWER, 1)),
}


@pytest.mark.parametrize("case", RIGHT)
@pytest.mark.parametrize("chop", [0, 1], ids=["", "chopped"])
async def test_a_message_arrives_whole(case, chop):
    data = RIGHT[case]
    async with (
        serving(data, chop=997 if chop and len(data) > 1000 else chop) as server,
        reach(connect=server.url) as client,
    ):
        answer = await client.initialize()

    assert answer["agentInfo"]["name"] == "κόσμε"


async def test_pings_are_answered_in_order_between_fragments():
    """2.10, 5.6."""
    pings = b"".join([frame(PING, b"payload-%d" % number) for number in range(10)])
    async with serving(fragmented(ANSWER[:50], ANSWER[50:], between=pings)) as server:
        async with reach(connect=server.url) as client:
            await client.initialize()
        await server.done.wait()

    assert server.got[:10] == [(PONG, b"payload-%d" % number) for number in range(10)]


BROKEN = {
    "2.5 a ping of 126 bytes": (1002, frame(PING, b"\xfe" * 126)),
    "3.1 reserved bits": (1002, frame(TEXT, ANSWER, rsv=1)),
    "4.1.1 a reserved opcode": (1002, frame(3, b"x")),
    "5.9 a continuation of nothing": (1002, frame(CONTINUATION, ANSWER)),
    "5.18 a text within a text": (1002, frame(TEXT, b"{", fin=False) + frame(TEXT, ANSWER)),
    "6.3.1 not UTF-8": (1007, frame(TEXT, b"\xce\xba\xed\xa0\x80edited")),
    "7.3.2 a close of one byte": (1002, frame(CLOSE, b"\x03")),
    "7.5.1 a reason that is not UTF-8": (1007, close(1000, b"\xce\xba\xed\xa0\x80")),
    "7.9.3 close code 1005": (1002, close(1005)),
    "RFC 6455 5.1 masked": (1002, masked_frame(TEXT, ANSWER)),
}


@pytest.mark.parametrize("case", BROKEN)
async def test_a_protocol_error_of_the_server_is_answered_with_a_close_code_and_reported(case):
    code, data = BROKEN[case]
    async with serving(data) as server:
        async with reach(connect=server.url) as client:
            with pytest.raises(RequestError, match=rf"broke the rules .* \({code}, "):
                await client.initialize()
        await server.done.wait()

    ((opcode, payload),) = server.got
    assert (opcode, int.from_bytes(payload[:2])) == (CLOSE, code)


@pytest.mark.parametrize("code", [1001, 1011, 3000, 4999])
async def test_a_close_frame_is_answered_with_its_code_and_reported(code):
    async with serving(close(code, b"so it is")) as server:
        async with reach(connect=server.url) as client:
            with pytest.raises(RequestError, match=rf"closed its connection .* \({code}, so it is"):
                await client.initialize()
        await server.done.wait()

    assert server.got == [(CLOSE, code.to_bytes(2) + b"so it is")]


@pytest.mark.parametrize("data", [b"", frame(TEXT, ANSWER)[:30]], ids=["at once", "in a frame"])
async def test_tcp_eof_without_a_close_frame_ends_the_connection(data):
    async with (
        serving(data or frame(PONG), hang_up=True) as server,
        reach(connect=server.url) as client,
    ):
        with pytest.raises(RequestError, match=r"lost its connection to .*: it was cut"):
            await client.initialize()
