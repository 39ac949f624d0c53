"""Descriptors served where trio waits, and the same served by trio: nobody can tell the difference.

Every test runs with the epoll fast path and without it. The traffic is a ball that goes round and
round through pipes of ours, so that there is always something to do for a step.
"""

import contextvars
import os
import select
import signal
import socket
import subprocess
import sys
import textwrap
import threading
from contextlib import asynccontextmanager, contextmanager
from functools import partial
from time import monotonic

import attrs
import pytest
import trio
from support.recording_connection import Desk
from trio.testing import MockClock, wait_all_tasks_blocked

from conductor.errors import ConnectionClosed
from conductor.jsonrpc.connection import Connection
from conductor.transport.epoll_loop import EpollFastPath, current_fast_path
from conductor.transport.fd_transport import FdTransport
from conductor.transport.io_loop import Flusher, write_loop

PATIENCE = 30
WAYS = ["plane", "portable"]


@pytest.fixture(params=WAYS)
def way(request, monkeypatch):
    """With the epoll fast path, or without; for tests that have runs of their own."""
    monkeypatch.setenv("ACP_CONDUCTOR_PLANE", "off" if request.param == "portable" else "on")
    return request.param


@pytest.fixture
async def served(way):
    """The test's run is served that way."""
    with EpollFastPath.installed():
        assert (current_fast_path() is not None) == (way == "plane")
        yield


def pipes():
    """A transport, and our ends: where it reads from, and where it writes to."""
    (their_in, our_out), (our_in, their_out) = os.pipe(), os.pipe()
    for fd in (their_in, their_out):
        os.set_blocking(fd, False)
    return FdTransport(their_in, their_out), our_out, our_in


def close(*descriptors):
    for descriptor in descriptors:
        os.close(descriptor)


class Counting(Flusher):
    """Knows how often something was written, or could have been."""

    attempts = 0

    def made_room(self):
        self.attempts += 1
        super().made_room()


@attrs.define
class Ball:
    """Bytes that go round: what the transport receives, it sends to itself."""

    transport: FdTransport = attrs.field(init=False)
    rounds: int = attrs.field(default=0, init=False)
    out_of_play: bool = attrs.field(default=False, init=False)
    _until: int = attrs.field(default=0, init=False)
    _arrived: trio.Event = attrs.field(factory=trio.Event, init=False)
    _end: float = attrs.field(init=False)

    def __attrs_post_init__(self):
        read_fd, write_fd = os.pipe()
        for fd in (read_fd, write_fd):
            os.set_blocking(fd, False)
        self.transport = FdTransport(read_fd, write_fd)
        self._end = monotonic() + PATIENCE

    def take(self, chunk):
        assert monotonic() < self._end, "trio was not let run"  # fail_after could not tell
        self.rounds += 1
        if self.rounds == self._until:
            self._arrived.set()
        if not self.out_of_play:
            self.transport.write_now([chunk])
        return self.out_of_play

    async def roll(self):
        self.transport.write_now([b"ball"])
        await self.transport.receive_each(self.take)

    async def wait_rounds(self, count):
        self._until, self._arrived = self.rounds + count, trio.Event()
        await self._arrived.wait()


# -- one descriptor ----------------------------------------------------------------------------


async def test_chunks_arrive_in_order_and_then_the_end(served, nursery):
    end, ours, other = pipes()
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
    end.close()
    os.close(other)


async def test_take_may_stop_and_the_rest_waits_until_it_is_asked_for(served):
    end, ours, other = pipes()
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
    end.close()
    os.close(other)


async def test_what_was_read_before_comes_first(served):
    _, write_fd = closed, _ = os.pipe()
    os.close(closed)
    read_fd, ours = os.pipe()
    os.write(ours, b"second")
    os.close(ours)
    os.set_blocking(read_fd, False)
    end = FdTransport(read_fd, write_fd, [b"first"])
    chunks = []

    with trio.fail_after(PATIENCE):
        assert not await end.receive_each(lambda chunk: chunks.append(chunk))

    assert chunks == [b"first", b"second"]
    end.close()


async def test_a_reader_that_is_cancelled_leaves_everything_for_the_next(served, nursery):
    end, ours, other = pipes()
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
    end.close()
    os.close(other)


async def test_whoever_is_cancelled_already_does_not_sleep(served):
    end, ours, other = pipes()
    os.write(ours, b"unread")

    with trio.CancelScope() as scope:
        scope.cancel()
        await end.receive_each(pytest.fail)

    assert scope.cancelled_caught
    assert await end.receive() == b"unread"
    end.close()
    close(ours, other)


async def test_a_writer_that_is_cancelled_leaves_the_room_for_the_next(served, nursery):
    end, ours, other = pipes()
    fill(end)
    with trio.CancelScope() as scope:
        nursery.start_soon(cancel_when_all_wait, scope)
        await end.write_each(pytest.fail)
    assert scope.cancelled_caught

    os.read(other, 1 << 20)
    with trio.fail_after(PATIENCE):
        await end.write_each(lambda: end.write_now([b"x"]) == 1)

    end.close()
    close(ours, other)


async def test_a_reader_whose_descriptor_is_closed_sees_the_end_of_the_stream(served, nursery):
    end, ours, other = pipes()
    nursery.start_soon(call_when_all_wait, end.close_reading)

    with trio.fail_after(PATIENCE):
        assert not await end.receive_each(pytest.fail)

    end.close()
    close(ours, other)


async def test_a_writer_whose_descriptor_is_closed_goes_on_and_finds_out(served, nursery):
    end, ours, other = pipes()
    fill(end)
    nursery.start_soon(call_when_all_wait, end.close_writing)

    with trio.fail_after(PATIENCE):
        await end.write_each(lambda: True)
    with pytest.raises(ConnectionClosed):
        await end.write_each(lambda: end.write_now([b"x"]) == 1)

    end.close()
    close(ours, other)


@pytest.mark.parametrize("stops", [True, False])
async def test_a_step_may_close_its_own_descriptor_and_that_of_another(served, stops):
    end, ours, other = pipes()
    neighbour, its_ours, its_other = pipes()
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
            os.write(ours, b"both are ready in one look")
            os.close(its_ours)

    assert ended == [False, False]
    close(ours, other, its_other)


async def test_an_exception_of_a_step_is_that_of_its_task_and_of_no_other(served, nursery):
    ball = Ball()
    nursery.start_soon(ball.roll)
    end, ours, other = pipes()

    def take(chunk):
        raise LookupError(chunk)

    os.write(ours, b"what it was")
    with trio.fail_after(PATIENCE), pytest.raises(LookupError, match="what it was"):
        await end.receive_each(take)
    with trio.fail_after(PATIENCE):
        await ball.wait_rounds(10)

    ball.out_of_play = True
    end.close()
    close(ours, other)
    nursery.cancel_scope.cancel()
    ball.transport.close()


async def test_a_writer_learns_that_its_peer_hung_up(served, nursery):
    end, ours, other = pipes()
    fill(end)
    nursery.start_soon(call_when_all_wait, partial(os.close, other))

    with trio.fail_after(PATIENCE), pytest.raises(ConnectionClosed, match="Broken pipe"):
        await end.write_each(lambda: end.write_now([b"x"]) == 1)

    end.close()
    os.close(ours)


async def test_a_socket_that_was_reset_has_ended(served):
    with socket.create_server(("127.0.0.1", 0)) as listener:
        theirs = socket.create_connection(listener.getsockname())
        ours, _ = listener.accept()
    ours.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
    theirs.setblocking(False)
    end = FdTransport(os.dup(theirs.fileno()), theirs.detach())
    ours.close()

    with trio.fail_after(PATIENCE):
        assert not await end.receive_each(pytest.fail)

    end.close()


async def test_everything_is_written_to_a_peer_that_reads_by_and_by(served):
    end, ours, other = pipes()
    left = [memoryview(b"0123456789" * 200_000)]

    def write():
        left[0] = left[0][end.write_now([left[0]]) :]
        return not left[0]

    with trio.fail_after(PATIENCE):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(end.write_each, write)
            got = await trio.to_thread.run_sync(read_exactly, other, 2_000_000)

    assert got == b"0123456789" * 200_000
    end.close()
    close(ours, other)


async def test_a_connection_writes_its_backlog_rests_and_writes_the_next_one(served, nursery):
    end, ours, other = pipes()
    connection = Connection(end, Desk(), Counting())
    nursery.start_soon(write_loop, connection, connection.flusher)
    nursery.start_soon(connection.flusher.run)
    await wait_all_tasks_blocked()

    for digit in b"01", b"23", b"45":
        connection.write((digit * 500_000, b"\n"))
        got = await trio.to_thread.run_sync(read_exactly, other, 1_000_001)
        assert got == digit * 500_000 + b"\n"
    attempts = connection.flusher.attempts
    ball = Ball()
    nursery.start_soon(ball.roll)
    await ball.wait_rounds(20)  # there is room in the pipe all the time

    assert connection.flusher.attempts <= attempts + 1
    for transport in (ball.transport, end):
        transport.close()
    close(ours, other)


@asynccontextmanager
async def writing(connection):
    """Somebody writes what waits; at the end, it is over before long."""
    with trio.fail_after(PATIENCE):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(write_loop, connection, connection.flusher)
            await wait_all_tasks_blocked()
            yield


async def test_a_writer_that_rests_ends_when_its_descriptor_is_closed(served):
    end, ours, other = pipes()
    connection = Connection(end, Desk(), Flusher())

    async with writing(connection):
        connection.abort_writing()
        connection.on_blocked()

    end.close()
    close(ours, other)


async def test_a_backlog_that_nobody_reads_any_more_is_lost_and_its_writer_ends(served):
    end, ours, other = pipes()
    connection = Connection(end, Desk(), Flusher())

    async with writing(connection):
        connection.write((b"x" * 1_000_000,))
        connection.flusher.flush()
        assert not connection.closed
        await wait_all_tasks_blocked()
        os.close(other)

    assert connection.closed
    end.close()
    os.close(ours)


async def test_a_step_runs_in_the_context_of_its_task(served):
    whose = contextvars.ContextVar("whose", default="nobody's")
    end, ours, other = pipes()
    seen = []

    async def read():
        whose.set("the task's")
        await end.receive_each(lambda chunk: [seen.append(whose.get())] != [])

    os.write(ours, b"x")
    with trio.fail_after(PATIENCE):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(read)

    assert seen == ["the task's"]
    end.close()
    close(ours, other)


# -- many of them, and trio beside them --------------------------------------------------------


async def test_two_hundred_descriptors_pass_a_message_from_each_to_the_next(served, nursery):
    ends = [pipes() for _ in range(200)]
    passed, arrived = [], trio.Event()

    def pass_on(place, chunk):
        passed.append(place)
        if place + 1 < len(ends):
            os.write(ends[place + 1][1], chunk)
        else:
            arrived.set()

    for place, (end, _, _) in enumerate(ends):
        nursery.start_soon(end.receive_each, partial(pass_on, place))
    await wait_all_tasks_blocked()
    os.write(ends[0][1], b"x")
    with trio.fail_after(PATIENCE):
        await arrived.wait()
    nursery.cancel_scope.cancel()

    assert passed == list(range(200))
    for end, ours, other in ends:
        end.close()
        close(ours, other)


async def timers(ball):
    start = trio.current_time()
    for tick in range(20):
        await trio.sleep_until(start + tick / 100)


async def callbacks_of_threads(ball):
    token, called, all_called = trio.lowlevel.current_trio_token(), [], trio.Event()

    def call(number):
        called.append(number)
        if len(called) == 40:
            all_called.set()

    def run():
        for number in range(10):
            token.run_sync_soon(call, number)

    threads = [threading.Thread(target=run) for _ in range(4)]
    for thread in threads:
        thread.start()
    await all_called.wait()
    for thread in threads:
        thread.join()


async def worker_threads(ball):
    for number in range(20):
        assert await trio.to_thread.run_sync(trio.from_thread.run_sync, abs, -number) == number


async def processes(ball):
    done = await trio.run_process(["cat"], stdin=b"x" * 200_000, capture_stdout=True)
    assert done.stdout == b"x" * 200_000


async def sockets(ball):
    async def echo(stream):
        async for chunk in stream:
            await stream.send_all(chunk)

    async with trio.open_nursery() as nursery:
        listeners = await nursery.start(partial(trio.serve_tcp, echo, 0, host="127.0.0.1"))
        async with await trio.open_tcp_stream(*listeners[0].socket.getsockname()) as stream:
            for number in range(50):
                await stream.send_all(b"%d" % number)
                assert await stream.receive_some() == b"%d" % number
        nursery.cancel_scope.cancel()


async def signals(ball):
    with trio.open_signal_receiver(signal.SIGUSR1) as received:
        for _ in range(10):
            os.kill(os.getpid(), signal.SIGUSR1)
            assert await anext(received) == signal.SIGUSR1


async def other_tasks(ball):
    """A task that never waits for anything, while the ball goes on."""
    until = ball.rounds + 100
    turns = 0
    while ball.rounds < until or turns < 100:
        await trio.lowlevel.checkpoint()
        turns += 1


async def idleness_is_not_claimed_of_a_run_that_is_busy(ball):
    with trio.move_on_after(0.05):
        await wait_all_tasks_blocked(cushion=10)
        pytest.fail("the deadline was not seen")


@pytest.mark.parametrize(
    "work",
    [
        timers,
        callbacks_of_threads,
        worker_threads,
        processes,
        sockets,
        signals,
        other_tasks,
        idleness_is_not_claimed_of_a_run_that_is_busy,
    ],
)
async def test_traffic_without_a_pause_and_the_work_of_trio_go_on_beside_each_other(
    served, nursery, work
):
    ball = Ball()
    nursery.start_soon(ball.roll)

    with trio.fail_after(PATIENCE):
        await work(ball)
        await ball.wait_rounds(10)

    nursery.cancel_scope.cancel()
    ball.transport.close()


@pytest.mark.parametrize(
    "work", [timers, callbacks_of_threads, worker_threads, processes, sockets, signals]
)
async def test_the_work_of_trio_goes_on_while_nothing_comes(served, nursery, work):
    end, ours, other = pipes()
    nursery.start_soon(end.receive_each, pytest.fail)

    with trio.fail_after(PATIENCE):
        await work(None)

    nursery.cancel_scope.cancel()
    end.close()
    close(ours, other)


# -- what a step does to trio ------------------------------------------------------------------


def an_event(do, nursery):
    event = trio.Event()

    async def wait():
        await event.wait()
        do()

    nursery.start_soon(wait)
    return event.set


def a_new_task(do, nursery):
    async def task():
        do()

    return partial(nursery.start_soon, task)


def a_cancelled_scope(do, nursery):
    scope = trio.CancelScope()

    async def wait():
        with scope:
            await trio.sleep_forever()
        do()

    nursery.start_soon(wait)
    return scope.cancel


def a_deadline_of_the_task_that_it_wakes(do, nursery):
    event = trio.Event()

    async def wait():
        await event.wait()
        with trio.move_on_after(0.01):
            await trio.sleep_forever()
        do()

    nursery.start_soon(wait)
    return event.set


def an_earlier_deadline_for_a_task_that_it_wakes(do, nursery):
    """As those who watch for what is overdue do it."""
    changed, deadline = trio.Event(), [trio.current_time() + 3 * PATIENCE]

    async def wait():
        nonlocal changed
        while True:
            with trio.move_on_at(deadline[0]) as scope:
                changed = trio.Event()
                await changed.wait()
            if scope.cancelled_caught:
                return do()

    def bring_forward():
        deadline[0] = trio.current_time() + 0.01
        changed.set()

    nursery.start_soon(wait)
    return bring_forward


def a_callback(do, nursery):
    return partial(trio.lowlevel.current_trio_token().run_sync_soon, do)


def a_closed_descriptor(do, nursery):
    """One that trio itself waits for."""
    left, right = socket.socketpair()

    async def wait():
        with pytest.raises(trio.ClosedResourceError):
            await trio.lowlevel.wait_readable(left)
        left.close()
        right.close()
        do()

    nursery.start_soon(wait)
    return partial(trio.lowlevel.notify_closing, left)


def room_in_a_channel(do, nursery):
    send, receive = trio.open_memory_channel(0)

    async def wait():
        with send, receive:
            assert await receive.receive() == "item"
        do()

    nursery.start_soon(wait)
    return partial(send.send_nowait, "item")


@pytest.mark.parametrize(
    "prepare",
    [
        an_event,
        a_new_task,
        a_cancelled_scope,
        a_deadline_of_the_task_that_it_wakes,
        an_earlier_deadline_for_a_task_that_it_wakes,
        a_callback,
        a_closed_descriptor,
        room_in_a_channel,
    ],
)
def test_what_a_step_sets_going_goes_on_though_nothing_else_happens(way, prepare):
    async def main():
        done = []
        end, ours, other = pipes()
        late = threading.Timer(PATIENCE, os.close, [ours])  # fail_after would wake trio itself
        with EpollFastPath.installed():
            async with trio.open_nursery() as nursery:
                act = prepare(lambda: (done.append("done"), nursery.cancel_scope.cancel()), nursery)

                def take(chunk):
                    act()

                await wait_all_tasks_blocked()
                late.start()
                os.write(ours, b"x")
                await end.receive_each(take)
                nursery.cancel_scope.cancel()
        assert late.is_alive()
        late.cancel()
        end.close()
        close(ours, other)
        return done

    assert trio.run(main) == ["done"]


async def test_a_step_may_take_what_trio_is_about_to_find_and_wake_a_task(monkeypatch, nursery):
    monkeypatch.setenv("ACP_CONDUCTOR_PLANE", "on")
    end, ours, other = pipes()
    found, lost = socket.socketpair()
    woken = trio.Event()

    def take(chunk):
        found.recv(1)
        woken.set()

    with found, lost, EpollFastPath.installed():
        nursery.start_soon(end.receive_each, take)
        nursery.start_soon(trio.lowlevel.wait_readable, found)
        await wait_all_tasks_blocked()
        lost.send(b"x")
        os.write(ours, b"both are ready in one look")
        late = threading.Timer(PATIENCE, lost.send, [b"x"])
        late.start()
        await woken.wait()
        assert late.is_alive()
        late.cancel()
        nursery.cancel_scope.cancel()

    end.close()
    close(ours, other)


# -- the run as a whole ------------------------------------------------------------------------


@pytest.mark.parametrize("work", [timers, worker_threads, sockets, signals])
async def test_trio_itself_never_sleeps(monkeypatch, nursery, work):
    """Or traffic would wait for it."""
    monkeypatch.setenv("ACP_CONDUCTOR_PLANE", "on")
    (epoll_of_trio,) = map(int, epolls())
    waits = []

    class Witness(trio.abc.Instrument):
        def before_io_wait(self, timeout):
            readable, _, _ = select.select([epoll_of_trio], [], [], 0)
            waits.append(timeout == 0 or readable != [])

    witness = Witness()
    ball = Ball()
    with EpollFastPath.installed():
        trio.lowlevel.add_instrument(witness)
        nursery.start_soon(ball.roll)
        with trio.fail_after(PATIENCE):
            await work(ball)
        trio.lowlevel.remove_instrument(witness)
        nursery.cancel_scope.cancel()

    assert len(waits) > 10
    assert all(waits)
    ball.transport.close()


@pytest.mark.parametrize(
    "clock",
    [
        pytest.param({"autojump_threshold": 0}, id="jumps at once"),
        pytest.param({"autojump_threshold": 0.01}, id="jumps soon"),
        pytest.param({"rate": 1_000_000}, id="is fast"),
    ],
)
def test_a_clock_of_a_test_goes_as_it_should(way, clock):
    async def main():
        end, ours, other = pipes()
        with closing(end, ours, other), EpollFastPath.installed():
            async with trio.open_nursery() as nursery:
                nursery.start_soon(end.receive_each, pytest.fail)
                await trio.sleep(1000)
                nursery.cancel_scope.cancel()
        return trio.current_time()

    assert trio.run(main, clock=MockClock(**clock)) >= 1000


@pytest.mark.parametrize("cushion", [0, 0.01])
async def test_it_is_seen_that_all_wait(served, nursery, cushion):
    end, ours, other = pipes()
    nursery.start_soon(end.receive_each, pytest.fail)

    await wait_all_tasks_blocked(cushion)
    await wait_all_tasks_blocked(cushion)

    nursery.cancel_scope.cancel()
    end.close()
    close(ours, other)


def test_every_run_has_a_plane_of_its_own_and_leaves_nothing(monkeypatch):
    monkeypatch.setenv("ACP_CONDUCTOR_PLANE", "on")

    async def main():
        before = epolls()
        assert current_fast_path() is None
        with EpollFastPath.installed():
            plane = current_fast_path()
            ball = Ball()
            async with trio.open_nursery() as nursery:
                nursery.start_soon(ball.roll)
                await ball.wait_rounds(1)
                nursery.cancel_scope.cancel()
            ball.transport.close()
            assert len(epolls()) == len(before) + 1
        assert current_fast_path() is None
        assert epolls() == before
        with pytest.raises(KeyError):
            trio.lowlevel.remove_instrument(plane)
        return plane

    first, second = trio.run(main), trio.run(main)

    assert first is not None
    assert second is not None
    assert first is not second


async def test_where_there_are_several_epolls_the_descriptors_are_served_by_trio(monkeypatch):
    monkeypatch.setenv("ACP_CONDUCTOR_PLANE", "on")
    ball = Ball()

    with select.epoll(), EpollFastPath.installed():
        assert current_fast_path() is None
        with trio.fail_after(PATIENCE):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(ball.roll)
                await ball.wait_rounds(10)
                nursery.cancel_scope.cancel()

    ball.transport.close()


async def test_a_second_plane_in_a_run_is_the_first(monkeypatch):
    monkeypatch.setenv("ACP_CONDUCTOR_PLANE", "on")

    with EpollFastPath.installed():
        plane = current_fast_path()
        with EpollFastPath.installed():
            assert current_fast_path() is plane
        assert current_fast_path() is plane


async def test_children_inherit_no_epoll(served):
    done = await trio.to_thread.run_sync(
        partial(subprocess.run, ["ls", "-l", "/proc/self/fd"], close_fds=False, stdout=-1)
    )

    assert b"eventpoll" not in done.stdout


async def test_what_fails_in_another_instrument_is_no_concern_of_ours(served, nursery, caplog):
    class Broken(trio.abc.Instrument):
        def before_io_wait(self, timeout):
            raise LookupError

    ball = Ball()
    nursery.start_soon(ball.roll)
    trio.lowlevel.add_instrument(Broken())
    with trio.fail_after(PATIENCE):
        await ball.wait_rounds(10)

    assert "Broken" in caplog.text
    nursery.cancel_scope.cancel()
    ball.transport.close()


def test_what_a_signal_handler_raises_ends_the_run(monkeypatch):
    """As it does where trio waits, but that tasks are given time to leave."""
    monkeypatch.setenv("ACP_CONDUCTOR_PLANE", "on")

    def stop(number, frame):
        raise LookupError("raised by a handler")

    async def main():
        end, ours, other = pipes()
        with closing(end, ours, other), EpollFastPath.installed():
            signal.setitimer(signal.ITIMER_REAL, 0.05)
            await end.receive_each(pytest.fail)

    before = signal.signal(signal.SIGALRM, stop)
    try:
        with pytest.raises(trio.TrioInternalError) as caught:
            trio.run(main)
    finally:
        signal.signal(signal.SIGALRM, before)

    assert "raised by a handler" in repr(caught.value.__cause__)


@pytest.mark.parametrize("traffic", ["nothing", "ball"])
def test_an_interrupt_from_the_keyboard_ends_the_run(way, traffic):
    script = """
        import os, signal, sys, threading, trio
        from transport.test_epoll_loop import Ball, pipes
        from conductor.transport.epoll_loop import EpollFastPath, current_fast_path

        async def main():
            with EpollFastPath.installed():
                assert (current_fast_path() is not None) == (sys.argv[1] == "plane")
                async with trio.open_nursery() as nursery:
                    end, ours, other = pipes()
                    nursery.start_soon(end.receive_each, print)
                    if sys.argv[2] == "ball":
                        nursery.start_soon(Ball().roll)
                    threading.Timer(0.1, os.kill, [os.getpid(), signal.SIGINT]).start()
                    await trio.sleep_forever()

        try:
            trio.run(main)
        except* KeyboardInterrupt:
            print("interrupted")
        """
    root = os.path.dirname(os.path.dirname(os.path.dirname(__file__)))
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script), way, traffic],
        env={**os.environ, "PYTHONPATH": f"{root}{os.pathsep}{root}/tests"},
        capture_output=True,
        text=True,
        timeout=PATIENCE,
    )

    assert (done.stdout, done.stderr, done.returncode) == ("interrupted\n", "", 0)


# ----------------------------------------------------------------------------------------------


def epolls():
    found = set()
    for name in os.listdir("/proc/self/fd"):
        try:
            if "eventpoll" in os.readlink(f"/proc/self/fd/{name}"):
                found.add(name)
        except OSError:
            pass
    return found


@contextmanager
def closing(end, *descriptors):
    try:
        yield
    finally:
        end.close()
        close(*descriptors)


async def call_when_all_wait(function):
    await wait_all_tasks_blocked()
    function()


async def cancel_when_all_wait(scope):
    await call_when_all_wait(scope.cancel)


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
