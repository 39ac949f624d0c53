"""Descriptors and workloads for tests that run with the epoll fast path and without it."""

import os
import signal
import threading
from contextlib import contextmanager
from functools import partial
from time import monotonic

import attrs
import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from conductor.transport.fd_transport import FdTransport

PATIENCE = 30


def pipes():
    """A transport, the descriptor that feeds it, and the one that receives what it writes."""
    (their_in, our_out), (our_in, their_out) = os.pipe(), os.pipe()
    for fd in (their_in, their_out):
        os.set_blocking(fd, False)
    return FdTransport(their_in, their_out), our_out, our_in


def close(*descriptors):
    for descriptor in descriptors:
        os.close(descriptor)


@contextmanager
def closing(end, *descriptors):
    try:
        yield
    finally:
        end.close()
        close(*descriptors)


@attrs.define
class Loopback:
    """A transport that sends what it receives to itself, so that there is always traffic."""

    transport: FdTransport = attrs.field(init=False)
    rounds: int = attrs.field(default=0, init=False)
    stopped: bool = attrs.field(default=False, init=False)
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
        if not self.stopped:
            self.transport.write_now([chunk])
        return self.stopped

    async def run(self):
        self.transport.write_now([b"loopback"])
        await self.transport.receive_each(self.take)

    async def wait_rounds(self, count):
        self._until, self._arrived = self.rounds + count, trio.Event()
        await self._arrived.wait()


async def timers(loopback):
    start = trio.current_time()
    for tick in range(20):
        await trio.sleep_until(start + tick / 100)


async def callbacks_of_threads(loopback):
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


async def worker_threads(loopback):
    for number in range(20):
        assert await trio.to_thread.run_sync(trio.from_thread.run_sync, abs, -number) == number


async def processes(loopback):
    done = await trio.run_process(["cat"], stdin=b"x" * 200_000, capture_stdout=True)
    assert done.stdout == b"x" * 200_000


async def sockets(loopback):
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


async def signals(loopback):
    with trio.open_signal_receiver(signal.SIGUSR1) as received:
        for _ in range(10):
            os.kill(os.getpid(), signal.SIGUSR1)
            assert await anext(received) == signal.SIGUSR1


async def other_tasks(loopback):
    """A task that only executes checkpoints."""
    until = loopback.rounds + 100
    turns = 0
    while loopback.rounds < until or turns < 100:
        await trio.lowlevel.checkpoint()
        turns += 1


async def a_busy_run_is_not_idle(loopback):
    with trio.move_on_after(0.05):
        await wait_all_tasks_blocked(cushion=10)
        pytest.fail("the deadline was not seen")


async def call_when_all_wait(function):
    await wait_all_tasks_blocked()
    function()


async def cancel_when_all_wait(scope):
    await call_when_all_wait(scope.cancel)


def epolls():
    found = set()
    for name in os.listdir("/proc/self/fd"):
        try:
            if "eventpoll" in os.readlink(f"/proc/self/fd/{name}"):
                found.add(name)
        except OSError:
            pass
    return found
