"""One descriptor behaves alike with the epoll fast path (`epoll`) and without it (`trio`)."""

import contextvars
import os
from contextlib import asynccontextmanager
from functools import partial

import pytest
import trio
from support.peers.port import Desk
from trio.testing import wait_all_tasks_blocked

from conductor.errors import ConnectionClosed
from conductor.jsonrpc.connection import Connection
from conductor.transport.fd_transport import FdTransport
from conductor.transport.io_loop import Flusher, write_loop

from .fast_path import (
    PATIENCE,
    Loopback,
    call_when_all_wait,
    cancel_when_all_wait,
)


class Counting(Flusher):
    """Knows how often something was written, or could have been."""

    attempts = 0

    def made_room(self):
        self.attempts += 1
        super().made_room()


async def test_chunks_arrive_in_order_and_then_the_end(served, nursery, pipes):
    end, ours, _other = pipes()
    chunks, ended = [], trio.Event()

    async def read():
        while await end.receive_each(lambda chunk: chunks.append(chunk)):
            pass
        ended.set()

    nursery.start_soon(read)
    sent = b"".join(b"%d," % number for number in range(100_000))
    with trio.fail_after(PATIENCE):
        await trio.to_thread.run_sync(write_all, ours, sent)
        os.close(ours)
        await ended.wait()

    assert b"".join(chunks) == sent


async def test_take_may_stop_and_the_rest_stays_for_the_next_call(served, pipes):
    end, ours, _other = pipes()
    chunks = []

    def one(chunk):
        chunks.append(chunk)
        return True

    os.write(ours, b"one")
    assert await end.receive_each(one)
    os.write(ours, b"two")
    await wait_all_tasks_blocked()
    assert chunks == [b"one"]
    assert await end.receive_each(one)
    os.close(ours)
    assert not await end.receive_each(one)

    assert chunks == [b"one", b"two"]


async def test_prefetched_chunks_come_first_in_order(served):
    _, write_fd = closed, _ = os.pipe()
    os.close(closed)
    read_fd, ours = os.pipe()
    os.write(ours, b"third")
    os.close(ours)
    os.set_blocking(read_fd, False)
    end = FdTransport(read_fd, write_fd, [b"first", b"second"])
    chunks = []

    with trio.fail_after(PATIENCE):
        assert not await end.receive_each(lambda chunk: chunks.append(chunk))

    assert chunks == [b"first", b"second", b"third"]
    end.close()


async def test_a_cancelled_reader_leaves_all_bytes_for_the_next(served, nursery, pipes):
    end, ours, _other = pipes()
    chunks = []
    with trio.CancelScope() as scope:
        nursery.start_soon(cancel_when_all_wait, scope)
        await end.receive_each(lambda chunk: chunks.append(chunk))
    assert scope.cancelled_caught

    os.write(ours, b"later")
    os.close(ours)
    with trio.fail_after(PATIENCE):
        assert not await end.receive_each(lambda chunk: chunks.append(chunk))

    assert chunks == [b"later"]


async def test_closing_the_descriptor_of_a_reader_ends_its_stream(served, nursery, pipes):
    end, _ours, _other = pipes()
    nursery.start_soon(call_when_all_wait, end.close_reading)

    with trio.fail_after(PATIENCE):
        assert not await end.receive_each(pytest.fail)


async def test_closing_the_descriptor_of_a_writer_wakes_it(served, nursery, pipes):
    end, _ours, _other = pipes()
    fill(end)
    nursery.start_soon(call_when_all_wait, end.close_writing)

    with trio.fail_after(PATIENCE):
        await end.write_each(lambda: True)
    with pytest.raises(ConnectionClosed):
        await end.write_each(lambda: end.write_now([b"x"]) == 1)


@pytest.mark.parametrize("stops", [True, False])
async def test_a_step_may_close_its_own_descriptor_and_that_of_another(served, stops, pipes):
    end, ours, _other = pipes()
    neighbour, its_ours, _its_other = pipes()
    ended = []

    def close_both(chunk):
        neighbour.close()
        end.close()
        return stops

    async def read(transport, take):
        ended.append(await transport.receive_each(take))

    with trio.fail_after(PATIENCE):
        async with trio.open_nursery() as readers:
            readers.start_soon(read, end, close_both)
            readers.start_soon(read, neighbour, pytest.fail)
            await wait_all_tasks_blocked()
            os.write(ours, b"both are ready at once")
            os.close(its_ours)

    assert ended == [False, False]


async def test_an_exception_of_a_step_is_raised_in_its_task_and_in_no_other(served, nursery, pipes):
    loopback = Loopback()
    nursery.start_soon(loopback.run)
    end, ours, _other = pipes()

    def take(chunk):
        raise LookupError(chunk)

    os.write(ours, b"what it was")
    with trio.fail_after(PATIENCE), pytest.raises(LookupError, match="what it was"):
        await end.receive_each(take)
    with trio.fail_after(PATIENCE):
        await loopback.wait_rounds(10)

    loopback.stopped = True
    nursery.cancel_scope.cancel()
    loopback.transport.close()


async def test_a_writer_is_woken_when_its_peer_closes(served, nursery, pipes):
    end, _ours, other = pipes()
    fill(end)
    nursery.start_soon(call_when_all_wait, partial(os.close, other))

    with trio.fail_after(PATIENCE), pytest.raises(ConnectionClosed, match="Broken pipe"):
        await end.write_each(lambda: end.write_now([b"x"]) == 1)


async def test_everything_is_written_to_a_slow_reader(served, pipes):
    end, _ours, other = pipes()
    left = [memoryview(b"0123456789" * 200_000)]

    def write():
        left[0] = left[0][end.write_now([left[0]]) :]
        return not left[0]

    with trio.fail_after(PATIENCE):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(end.write_each, write)
            got = await trio.to_thread.run_sync(read_exactly, other, 2_000_000)

    assert got == b"0123456789" * 200_000


async def test_what_a_step_writes_to_another_chain_is_flushed(served, nursery, pipes):
    end, ours, _other = pipes()
    far, _its_ours, its_other = pipes()
    connection = Connection(far, Desk(), Flusher())
    nursery.start_soon(end.receive_each, lambda chunk: connection.write((chunk,)))
    await wait_all_tasks_blocked()

    def pass_through():
        os.write(ours, b"line\n")
        return read_exactly(its_other, 5)

    with trio.fail_after(PATIENCE):
        got = await trio.to_thread.run_sync(pass_through, abandon_on_cancel=True)

    assert got == b"line\n"
    nursery.cancel_scope.cancel()


async def test_a_writer_waits_for_room_only_while_there_is_a_backlog(served, nursery, pipes):
    end, _ours, other = pipes()
    connection = Connection(end, Desk(), Counting())
    nursery.start_soon(write_loop, connection, connection.flusher)
    await wait_all_tasks_blocked()

    for digit in b"01", b"23", b"45":
        connection.write((digit * 500_000, b"\n"))
        got = await trio.to_thread.run_sync(read_exactly, other, 1_000_001)
        assert got == digit * 500_000 + b"\n"
    attempts = connection.flusher.attempts
    loopback = Loopback()
    nursery.start_soon(loopback.run)
    await loopback.wait_rounds(20)  # there is room in the pipe all the time

    assert connection.flusher.attempts <= attempts + 1
    loopback.transport.close()


@asynccontextmanager
async def writing(connection):
    """A task writes the backlog; it has to end by itself."""
    with trio.fail_after(PATIENCE):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(write_loop, connection, connection.flusher)
            await wait_all_tasks_blocked()
            yield


async def test_a_paused_writer_ends_when_its_descriptor_is_closed(served, pipes):
    end, _ours, _other = pipes()
    connection = Connection(end, Desk(), Flusher())

    async with writing(connection):
        connection.abort_writing()
        connection.on_blocked()


async def test_the_backlog_of_a_closed_peer_is_dropped_and_its_writer_ends(served, pipes):
    end, _ours, other = pipes()
    connection = Connection(end, Desk(), Flusher())

    async with writing(connection):
        connection.write((b"x" * 1_000_000,))
        connection.flusher.flush()
        assert not connection.closed
        await wait_all_tasks_blocked()
        os.close(other)

    assert connection.closed


async def test_a_step_runs_in_the_context_of_its_task(served, pipes):
    owner = contextvars.ContextVar("owner", default="no task")
    end, ours, _other = pipes()
    seen = []

    async def read():
        owner.set("the task")
        await end.receive_each(lambda chunk: [seen.append(owner.get())] != [])

    os.write(ours, b"x")
    with trio.fail_after(PATIENCE):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(read)

    assert seen == ["the task"]


def fill(transport):
    while transport.write_now([b"x" * 65536]):
        pass


def write_all(fd, data):
    while data:
        data = data[os.write(fd, data) :]


def read_exactly(fd, size):
    got = b""
    while len(got) < size:
        got += os.read(fd, 65536)
    return got
