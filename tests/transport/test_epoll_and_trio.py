"""The epoll fast path and trio's own work run beside each other.

The traffic is a `Loopback`: there is always a step to run."""

import os
import socket
import threading
from functools import partial

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from conductor.transport.epoll_loop import EpollFastPath

from .fast_path import (
    PATIENCE,
    Loopback,
    a_busy_run_is_not_idle,
    callbacks_of_threads,
    close,
    other_tasks,
    pipes,
    processes,
    signals,
    sockets,
    timers,
    worker_threads,
)

# -- many descriptors, and trio beside them --------------------------------------------------------


async def test_two_hundred_descriptors_pass_a_message_from_each_to_the_next(served, nursery, pipes):
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
        a_busy_run_is_not_idle,
    ],
)
async def test_continuous_traffic_does_not_starve_trio(served, nursery, work):
    loopback = Loopback()
    nursery.start_soon(loopback.run)

    with trio.fail_after(PATIENCE):
        await work(loopback)
        await loopback.wait_rounds(10)

    nursery.cancel_scope.cancel()
    loopback.transport.close()


@pytest.mark.parametrize(
    "work", [timers, callbacks_of_threads, worker_threads, processes, sockets, signals]
)
async def test_trio_tasks_run_while_there_is_no_traffic(served, nursery, work, pipes):
    end, _ours, _other = pipes()
    nursery.start_soon(end.receive_each, pytest.fail)

    with trio.fail_after(PATIENCE):
        await work(None)

    nursery.cancel_scope.cancel()


# -- what a step does to trio ----------------------------------------------------------------------


def an_event(do, nursery):
    event = trio.Event()

    async def wait():
        await event.wait()
        do()

    nursery.start_soon(wait)
    return event.set


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
    """As a task that waits for the earliest of several deadlines."""
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


@pytest.mark.parametrize(
    "prepare",
    [
        an_event,
        a_deadline_of_the_task_that_it_wakes,
        an_earlier_deadline_for_a_task_that_it_wakes,
        a_callback,
    ],
)
def test_work_that_a_step_causes_runs_without_another_event(backend, prepare):
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


async def test_a_step_may_consume_an_event_that_trio_waits_for_and_wake_a_task(
    monkeypatch, nursery, pipes
):
    monkeypatch.setenv("ACP_CONDUCTOR_EPOLL", "on")
    end, ours, _other = pipes()
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
        os.write(ours, b"both are ready at once")
        late = threading.Timer(PATIENCE, lost.send, [b"x"])
        late.start()
        await woken.wait()
        assert late.is_alive()
        late.cancel()
        nursery.cancel_scope.cancel()
