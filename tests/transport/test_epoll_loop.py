"""The epoll fast path in a trio run: its waiting, clocks, signals, instruments, and its end."""

import os
import select
import signal
import subprocess
import sys
import textwrap
from time import monotonic

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from conductor.transport.epoll_loop import EpollFastPath, current_fast_path
from conductor.transport.threads import wake_up_of_thread

from .fast_path import (
    PATIENCE,
    Loopback,
    closing,
    epolls,
    pipes,
    signals,
    sockets,
    timers,
    worker_threads,
)


@pytest.mark.parametrize("work", [timers, worker_threads, sockets, signals])
async def test_trio_never_blocks_in_its_own_epoll(monkeypatch, nursery, work):
    """Traffic would wait for it."""
    monkeypatch.setenv("ACP_CONDUCTOR_EPOLL", "on")
    (epoll_of_trio,) = map(int, epolls())
    waits = []

    class Witness(trio.abc.Instrument):
        def before_io_wait(self, timeout):
            readable, _, _ = select.select([epoll_of_trio], [], [], 0)
            waits.append(timeout == 0 or readable != [])

    witness = Witness()
    loopback = Loopback()
    with EpollFastPath.installed():
        trio.lowlevel.add_instrument(witness)
        nursery.start_soon(loopback.run)
        with trio.fail_after(PATIENCE):
            await work(loopback)
        trio.lowlevel.remove_instrument(witness)
        nursery.cancel_scope.cancel()

    assert len(waits) > 10
    assert all(waits)
    loopback.transport.close()


@pytest.mark.parametrize(
    "clock",
    [
        pytest.param({"autojump_threshold": 0}, id="jumps at once"),
        pytest.param({"autojump_threshold": 0.01}, id="jumps soon"),
        pytest.param({"rate": 1_000_000}, id="is fast"),
    ],
)
def test_the_virtual_clocks_of_trio_work(backend, clock):
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
async def test_wait_all_tasks_blocked_works(served, nursery, cushion, pipes):
    end, _ours, _other = pipes()
    nursery.start_soon(end.receive_each, pytest.fail)

    await wait_all_tasks_blocked(cushion)
    await wait_all_tasks_blocked(cushion)

    nursery.cancel_scope.cancel()


def test_every_run_has_a_fast_path_of_its_own_and_leaves_nothing(monkeypatch):
    monkeypatch.setenv("ACP_CONDUCTOR_EPOLL", "on")

    async def main():
        before = epolls()
        assert current_fast_path() is None
        with EpollFastPath.installed():
            fast_path = current_fast_path()
            loopback = Loopback()
            async with trio.open_nursery() as nursery:
                nursery.start_soon(loopback.run)
                await loopback.wait_rounds(1)
                nursery.cancel_scope.cancel()
            loopback.transport.close()
            assert len(epolls()) == len(before) + 1
        assert current_fast_path() is None
        assert epolls() == before
        with pytest.raises(KeyError):
            trio.lowlevel.remove_instrument(fast_path)
        return fast_path

    first, second = trio.run(main), trio.run(main)

    assert first is not None
    assert second is not None
    assert first is not second


async def test_with_several_epolls_in_the_process_trio_serves_the_descriptors(monkeypatch):
    monkeypatch.setenv("ACP_CONDUCTOR_EPOLL", "on")
    loopback = Loopback()

    with select.epoll(), EpollFastPath.installed():
        assert current_fast_path() is None
        with trio.fail_after(PATIENCE):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(loopback.run)
                await loopback.wait_rounds(10)
                nursery.cancel_scope.cancel()

    loopback.transport.close()


async def test_a_second_fast_path_in_a_run_is_the_first(monkeypatch):
    monkeypatch.setenv("ACP_CONDUCTOR_EPOLL", "on")

    with EpollFastPath.installed():
        fast_path = current_fast_path()
        with EpollFastPath.installed():
            assert current_fast_path() is fast_path
        assert current_fast_path() is fast_path


def test_an_exception_of_a_signal_handler_ends_the_run(monkeypatch):
    """As without the fast path, except that tasks are not cancelled first."""
    monkeypatch.setenv("ACP_CONDUCTOR_EPOLL", "on")

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


@pytest.mark.parametrize("traffic", [pytest.param("nothing", marks=pytest.mark.slow), "loopback"])
def test_an_interrupt_from_the_keyboard_ends_the_run(backend, traffic):
    script = """
        import os, signal, sys, threading, trio
        from fast_path import Loopback, pipes
        from conductor.transport.epoll_loop import EpollFastPath, current_fast_path

        signal.signal(signal.SIGINT, signal.default_int_handler)  # may be ignored by inheritance

        async def main():
            with EpollFastPath.installed():
                assert (current_fast_path() is not None) == (sys.argv[1] == "epoll")
                async with trio.open_nursery() as nursery:
                    end, ours, other = pipes()
                    nursery.start_soon(end.receive_each, print)
                    if sys.argv[2] == "loopback":
                        nursery.start_soon(Loopback().run)
                    threading.Timer(0.1, os.kill, [os.getpid(), signal.SIGINT]).start()
                    await trio.sleep_forever()

        try:
            trio.run(main)
        except* KeyboardInterrupt:
            print("interrupted")
        """
    here = os.path.dirname(__file__)
    root = os.path.dirname(os.path.dirname(here))
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script), backend, traffic],
        env={**os.environ, "PYTHONPATH": f"{root}{os.pathsep}{here}"},
        capture_output=True,
        text=True,
        timeout=PATIENCE,
    )

    assert (done.stdout, done.stderr, done.returncode) == ("interrupted\n", "", 0)


async def test_all_steps_of_a_wake_up_have_its_time(monkeypatch, nursery, pipes):
    monkeypatch.setenv("ACP_CONDUCTOR_EPOLL", "on")
    wake_up, found = wake_up_of_thread(), []
    one, to_one, _ = pipes()
    other, to_other, _ = pipes()

    def take(chunk):
        found.append((wake_up.time, monotonic()))
        return True

    with EpollFastPath.installed():
        nursery.start_soon(one.receive_each, take)
        nursery.start_soon(other.receive_each, take)
        await wait_all_tasks_blocked()
        before = monotonic()
        os.write(to_one, b"x")
        os.write(to_other, b"x")
        with trio.fail_after(PATIENCE):
            while len(found) < 2:
                await trio.lowlevel.checkpoint()

    (first, began), (second, _) = found
    assert before <= first == second <= began
    assert wake_up.time == 0
