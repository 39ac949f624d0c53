"""One step per chunk, and back-pressure at the edges."""

from __future__ import annotations

import trio
from support.peers.port import Desk
from trio.testing import wait_all_tasks_blocked

from conductor.jsonrpc.connection import Connection
from conductor.transport.io_loop import Flusher, ReadGate, read_loop, write_loop
from conductor.transport.memory import memory_pair

LINE = b'{"jsonrpc":"2.0","method":"n"}\n'


class Pumped(Desk):
    """A receiver behind a memory pipe; the test has its other end."""

    def __init__(self, capacity=65536):
        super().__init__()
        ours, self.far = memory_pair(capacity)
        self.flusher = Flusher()
        self.connection = Connection(ours, self, self.flusher)


async def test_all_lines_are_routed_until_eof_a_last_one_without_newline_too():
    desk = Pumped()
    desk.far.write_now([LINE * 3, LINE[:-1]])
    desk.far.close_writing()

    await read_loop(desk.connection, desk.flusher, None)

    assert desk.heard == [("notification", "n", None)] * 4


async def test_what_was_written_is_flushed_at_once_before_trio_waits():
    desk = Pumped()

    desk.connection.write((b"a\n",))
    desk.connection.write((b"b\n",))

    assert await desk.far.receive() == b"a\nb\n"


async def test_the_backlog_is_written_when_the_peer_reads(nursery):
    desk = Pumped(capacity=3)
    nursery.start_soon(write_loop, desk.connection, desk.flusher)
    await wait_all_tasks_blocked()

    desk.connection.write((b"0123456789",))
    received = b""
    while len(received) < 10:
        received += await desk.far.receive()

    assert received == b"0123456789"


async def test_the_stream_ends_after_the_backlog_even_if_nothing_was_flushed_before(nursery):
    desk = Pumped(capacity=3)
    nursery.start_soon(write_loop, desk.connection, desk.flusher)
    await wait_all_tasks_blocked()
    desk.connection.write((b"0123456789",))

    desk.connection.close_writing()

    received = b""
    with trio.fail_after(5):
        while len(received) < 10:
            received += await desk.far.receive()
        assert await desk.far.receive() == b""
    assert received == b"0123456789"


async def test_a_source_is_not_read_while_the_gate_is_closed(nursery, autojump_clock):
    desk, backlog = Pumped(), [0]
    gate = ReadGate(desk.flusher, lambda: backlog[0], high_water=10)
    nursery.start_soon(read_loop, desk.connection, desk.flusher, gate)
    await wait_all_tasks_blocked()
    backlog[0] = 11
    desk.far.write_now([LINE])
    await wait_all_tasks_blocked()
    desk.far.write_now([LINE])
    await wait_all_tasks_blocked()
    assert len(desk.heard) == 1

    desk.flusher.made_room()
    await wait_all_tasks_blocked()
    assert len(desk.heard) == 1
    backlog[0] = 10
    desk.flusher.made_room()
    await wait_all_tasks_blocked()

    assert len(desk.heard) == 2


async def test_the_write_loop_ends_with_its_connection():
    desk = Pumped(capacity=1)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(write_loop, desk.connection, desk.flusher)
        desk.connection.write((b"abc",))
        await wait_all_tasks_blocked()
        desk.far.close()
        await wait_all_tasks_blocked()

        assert desk.connection.closed
        nursery.cancel_scope.cancel()


async def test_a_closed_edge_is_read_to_eof_over_the_high_water_mark(autojump_clock):
    gone = [False]
    gate = ReadGate(Flusher(), lambda: 11, high_water=10, peer_closed_write=lambda: gone[0])
    async with trio.open_nursery() as nursery:
        nursery.start_soon(gate.wait)
        await trio.sleep(5)
        assert nursery.child_tasks
        gone[0] = True
