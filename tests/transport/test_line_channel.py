"""The network's end of a memory pair."""

from __future__ import annotations

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from conductor.errors import ConnectionClosed
from conductor.transport.memory import LineChannel, memory_pair


async def test_lines_come_whole_however_the_bytes_were_split_and_end_with_an_empty_list():
    chain, network = memory_pair()
    lines = LineChannel(network)
    chain.write_now([b'{"a":1}\n{"b'])
    received = [await lines.receive()]
    chain.write_now([b'":2}\n{"cut'])
    received.append(await lines.receive())
    chain.close_writing()
    received.append(await lines.receive())

    assert received == [[b'{"a":1}'], [b'{"b":2}'], []]


async def test_sending_waits_for_room_and_the_lines_of_two_senders_do_not_mix():
    chain, network = memory_pair(4)
    lines = LineChannel(network)
    received = bytearray()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(lines.send, [b"a" * 10])
        await wait_all_tasks_blocked()
        nursery.start_soon(lines.send, [b"b" * 10])
        while len(received) < 22:
            await wait_all_tasks_blocked()
            received += await chain.receive()

    assert received == b"a" * 10 + b"\n" + b"b" * 10 + b"\n"


async def test_a_partly_written_line_of_a_cancelled_sender_is_completed_first():
    chain, network = memory_pair(4)
    lines = LineChannel(network)
    received = bytearray()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(lines.send, [b"begun"])
        await wait_all_tasks_blocked()
        nursery.cancel_scope.cancel()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(lines.send, [b"next"])
        while len(received) < 11:
            await wait_all_tasks_blocked()
            received += await chain.receive()

    assert received == b"begun\nnext\n"


async def test_sending_to_an_ended_chain_raises():
    chain, network = memory_pair()
    chain.close()

    with pytest.raises(ConnectionClosed):
        await LineChannel(network).send([b"{}"])


async def test_after_the_last_line_from_the_network_the_chain_may_still_speak():
    chain, network = memory_pair()
    lines = LineChannel(network)
    lines.close_sending()

    assert await chain.receive() == b""
    chain.write_now([b"last\n"])
    assert await lines.receive() == [b"last"]
