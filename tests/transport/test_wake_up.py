"""The time of a wake-up of the epoll fast path."""

import os
from time import monotonic

import trio

from conductor.transport.epoll_loop import EpollFastPath
from conductor.transport.wake_up import wake_up_of_thread

from .fast_path import PATIENCE, close, pipes


async def test_all_steps_of_a_wake_up_have_its_time(monkeypatch, nursery):
    monkeypatch.setenv("ACP_CONDUCTOR_EPOLL", "on")
    wake_up, found = wake_up_of_thread(), []
    one, to_one, from_one = pipes()
    other, to_other, from_other = pipes()

    def take(chunk):
        found.append((wake_up.time, monotonic()))
        return True

    with EpollFastPath.installed():
        nursery.start_soon(one.receive_each, take)
        nursery.start_soon(other.receive_each, take)
        await trio.testing.wait_all_tasks_blocked()
        before = monotonic()
        os.write(to_one, b"x")
        os.write(to_other, b"x")
        with trio.fail_after(PATIENCE):
            while len(found) < 2:
                await trio.lowlevel.checkpoint()

    (first, began), (second, _) = found
    assert before <= first == second <= began
    assert wake_up.time == 0
    for end in (one, other):
        end.close()
    close(to_one, from_one, to_other, from_other)


async def test_a_thread_has_its_own():
    other = await trio.to_thread.run_sync(wake_up_of_thread)

    assert other is not wake_up_of_thread() is wake_up_of_thread()
