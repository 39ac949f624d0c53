"""The memory pipe that other tests use."""

from __future__ import annotations

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from conductor.errors import ConnectionClosed
from conductor.transport.memory import memory_pair


async def test_what_is_written_is_received_in_order_until_the_end():
    left, right = memory_pair()
    assert left.write_now([b"one ", memoryview(b"two")]) == 7
    left.close_writing()

    received = b"".join([chunk async for chunk in _chunks(right)])

    assert received == b"one two"


async def test_a_full_pipe_takes_a_part_and_wakes_the_writer():
    left, right = memory_pair(4)
    assert left.write_now([b"abcdef"]) == 4
    assert left.write_now([b"ef"]) == 0
    room = trio.Event()

    async def wait():
        await left.wait_writable()
        room.set()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(wait)
        await wait_all_tasks_blocked()
        assert not room.is_set()
        assert await right.receive() == b"abcd"
        await room.wait()


async def test_writing_to_a_closed_end_raises():
    left, right = memory_pair()
    right.close()

    with pytest.raises(ConnectionClosed):
        left.write_now([b"x"])
    assert await left.receive() == b""


async def test_the_directions_end_independently():
    left, right = memory_pair()
    left.close_writing()

    assert await right.receive() == b""
    assert right.write_now([b"still"]) == 5
    assert await left.receive() == b"still"


async def _chunks(transport):
    while chunk := await transport.receive():
        yield chunk
