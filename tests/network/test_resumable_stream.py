"""Two ends of a resumable stream over successive sockets. In memory, on a virtual clock."""

from __future__ import annotations

import math
import random

import attrs
import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from conductor.network.resumable_stream import ResumableStream
from conductor.network.sequence_numbers import WINDOW, SequenceError
from conductor.network.websocket import WebSocketClosed
from conductor.transport.memory import LineChannel, MemoryTransport, memory_pair


@attrs.define(eq=False)
class MemorySocket:
    """One end of a socket that is cut after a number of frames; frames in flight are lost."""

    outgoing: trio.MemorySendChannel[str]
    incoming: trio.MemoryReceiveChannel[str]
    budget: list[float]
    closed_with: int | None = None

    async def receive(self) -> str | None:
        try:
            frame = await self.incoming.receive()
        except trio.EndOfChannel:
            return None
        return None if self.spend() < 0 else frame

    async def send(self, text: str) -> None:
        if self.budget[0] < 0:
            raise WebSocketClosed(1006)
        try:
            await self.outgoing.send(text)
        except trio.BrokenResourceError:
            raise WebSocketClosed(1006) from None

    async def ping(self, deadline: float) -> None:
        raise NotImplementedError

    async def close(self, code: int = 1000, reason: str = "") -> None:
        self.closed_with = code
        self.outgoing.close()

    def spend(self) -> float:
        self.budget[0] -= 1
        return self.budget[0]

    def drop(self) -> None:
        self.outgoing.close()
        self.incoming.close()


def socket_pair(frames: float = math.inf) -> tuple[MemorySocket, MemorySocket]:
    there, out = trio.open_memory_channel[str](5)
    back, home = trio.open_memory_channel[str](5)
    budget = [frames]
    return MemorySocket(there, home, budget), MemorySocket(back, out, budget)


@attrs.define(eq=False)
class Ends:
    """`near` and `far` speak; between them, `carriers`."""

    near: MemoryTransport
    far: MemoryTransport
    carriers: tuple[ResumableStream, ResumableStream]

    async def connect(self, frames: float = math.inf) -> tuple[MemorySocket, MemorySocket]:
        """One socket, to its end."""
        here, there = self.carriers
        sockets = socket_pair(frames)
        received = here.received, there.received

        async def carry(stream: ResumableStream, socket: MemorySocket, peer_received: int) -> None:
            await stream.carry(socket, peer_received)
            socket.drop()

        async with trio.open_nursery() as nursery:
            nursery.start_soon(carry, here, sockets[0], received[1])
            nursery.start_soon(carry, there, sockets[1], received[0])
        return sockets

    async def connect_again_and_again(self, frames: int, rng: random.Random) -> None:
        here, there = self.carriers
        while not (here.peer_ended and there.peer_ended and here.is_drained and there.is_drained):
            await self.connect(rng.randrange(frames))


def ends() -> Ends:
    near, here = memory_pair()
    far, there = memory_pair()
    return Ends(
        near, far, (ResumableStream(LineChannel(here)), ResumableStream(LineChannel(there)))
    )


async def say(transport: MemoryTransport, count: int) -> None:
    for number in range(count):
        data = memoryview(b'{"n":%d}\n' % number)
        while data:
            data = data[transport.write_now([data]) :]
            if data:
                await transport.wait_writable()
        if number % 7 == 0:
            await trio.sleep(0.01)
    transport.close_writing()


async def hear(transport: MemoryTransport, into: list[bytes]) -> None:
    last_received = b""
    while chunk := await transport.receive():
        last_received += chunk
    into += last_received.splitlines()


@pytest.mark.parametrize(
    "seed", [pytest.param(each, marks=() if each < 3 else pytest.mark.slow) for each in range(8)]
)
async def test_however_often_the_sockets_are_cut_each_end_hears_everything_once(
    autojump_clock, seed
):
    both, rng = ends(), random.Random(seed)
    last_received: tuple[list[bytes], list[bytes]] = ([], [])

    async with trio.open_nursery() as nursery:
        for stream in both.carriers:
            nursery.start_soon(stream.run)
        nursery.start_soon(say, both.near, 1000)
        nursery.start_soon(say, both.far, 1500)
        nursery.start_soon(hear, both.near, last_received[0])
        nursery.start_soon(hear, both.far, last_received[1])
        await both.connect_again_and_again(40, rng)

    assert last_received[0] == [b'{"n":%d}' % number for number in range(1500)]
    assert last_received[1] == [b'{"n":%d}' % number for number in range(1000)]


async def test_when_both_have_ended_the_socket_is_closed_in_order(autojump_clock):
    both = ends()
    both.near.close_writing()
    both.far.close_writing()

    async with trio.open_nursery() as nursery:
        for stream in both.carriers:
            nursery.start_soon(stream.run)
        sockets = await both.connect()

    assert 1000 in {socket.closed_with for socket in sockets}
    assert all(stream.peer_ended and stream.is_drained for stream in both.carriers)


async def test_one_direction_continues_after_eof_of_the_other(autojump_clock):
    both = ends()
    both.near.close_writing()

    async with trio.open_nursery() as nursery:
        for stream in both.carriers:
            nursery.start_soon(stream.run)
        nursery.start_soon(both.connect)
        assert await both.far.receive() == b""
        await trio.sleep(100)
        both.far.write_now([b"late\n"])
        assert await both.near.receive() == b"late\n"
        both.far.close_writing()

    assert await both.near.receive() == b""


async def test_without_a_socket_the_buffer_is_bounded(autojump_clock):
    near, here = memory_pair()
    stream = ResumableStream(LineChannel(here))
    taken = 0

    async with trio.open_nursery() as nursery:
        nursery.start_soon(stream.run)
        for _ in range(1000):
            await wait_all_tasks_blocked()
            taken += near.write_now([b"a" * 9999 + b"\n"])
        nursery.cancel_scope.cancel()

    assert WINDOW < taken < WINDOW + 4 * 65536


@pytest.mark.slow
async def test_an_acknowledgement_does_not_wait_behind_unread_data(autojump_clock):
    """Both ends send more than fits, and take nothing until both are full: no deadlock."""
    both = ends()
    total = 3 * WINDOW
    last_received: tuple[list[bytes], list[bytes]] = ([], [])

    async def flood(transport: MemoryTransport) -> None:
        left = total
        while left > 0:
            written = transport.write_now([b"a" * 999 + b"\n"])
            left -= written
            if not written:
                await transport.wait_writable()
        transport.write_now([b"\n"])
        transport.close_writing()

    async with trio.open_nursery() as nursery:
        for stream in both.carriers:
            nursery.start_soon(stream.run)
        nursery.start_soon(both.connect)
        nursery.start_soon(flood, both.near)
        nursery.start_soon(flood, both.far)
        await trio.sleep(60)
        nursery.start_soon(hear, both.near, last_received[0])
        nursery.start_soon(hear, both.far, last_received[1])

    assert [sum(map(len, each)) > total * 0.9 for each in last_received] == [True, True]


async def test_an_impossible_acknowledgement_is_answered_with_an_error(autojump_clock):
    both = ends()
    here, _ = both.carriers
    socket, _other = socket_pair()

    with pytest.raises(SequenceError, match="the peer acknowledged 5"):
        await here.carry(socket, 5)

    assert socket.closed_with == 4400


async def test_a_missing_sequence_number_is_answered_with_an_error(autojump_clock):
    both = ends()
    here, _ = both.carriers
    socket, other = socket_pair()
    await other.send("{}")

    with pytest.raises(SequenceError, match="expected a numbered message"):
        await here.carry(socket, 0)

    assert socket.closed_with == 4400
