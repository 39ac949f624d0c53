"""Steps of the event loop as the watchdog's thread sees them, and the time that counts."""

from __future__ import annotations

import threading
import time
from types import SimpleNamespace

import pytest

from conductor.chain import blocking_step
from conductor.chain.blocking_step import BlockingStep, RunningClock
from conductor.plugins.plugin_code import PluginCall, PluginCode


class Frame:
    """A frame of a stack; `call` is that of the plugin code which runs in it."""

    def __init__(self, outer=None, name="handler", call=None):
        self.f_back = outer
        self.f_code = SimpleNamespace(co_name=name)
        self.call = call


LOOP = Frame(name="unrolled_run")


@pytest.fixture
def looks(monkeypatch):
    """Look at these stacks, one second apart; returns the seconds that count after each."""
    code = lambda each: each.call and PluginCode(PluginCall(each.call, {}), "", None, False)  # noqa: E731
    monkeypatch.setattr(blocking_step, "plugin_code", code)
    monkeypatch.setattr(blocking_step, "is_waiting", lambda each: each.f_code.co_name == "wait")

    def looks(*stacks):
        given = iter(stacks)
        step = BlockingStep(lambda: next(given))
        seconds = []
        for _ in stacks:
            step.look(1.0)
            seconds.append(step.seconds)
        return seconds

    return looks


def test_the_time_of_one_call_counts_from_the_first_look(looks):
    task, call = Frame(LOOP), object()

    assert looks(*(Frame(task, call=call) for _ in range(4))) == [0, 1, 2, 3]


def test_another_call_in_the_same_task_is_progress(looks):
    task, first, second = Frame(LOOP), object(), object()

    stacks = [Frame(task, call=call) for call in (first, first, second, second)]
    assert looks(*stacks) == [0, 1, 0, 1]


def test_another_task_is_progress(looks):
    tasks = [Frame(LOOP), Frame(LOOP)]

    assert looks(Frame(tasks[0]), Frame(tasks[0]), Frame(tasks[1])) == [0, 1, 0]


def test_a_loop_that_waits_for_events_does_not_block(looks):
    waiting = Frame(LOOP, "wait")

    assert looks(waiting, waiting, waiting) == [0, 0, 0]


@pytest.fixture
def clock(monkeypatch):
    """The clocks of a process, and a `RunningClock` that starts at their zero."""
    now = SimpleNamespace(wall=0.0, cpu=0.0, queued=0.0)
    clocks = SimpleNamespace(monotonic=lambda: now.wall, process_time=lambda: now.cpu)
    monkeypatch.setattr(blocking_step, "time", clocks)
    monkeypatch.setattr(blocking_step, "_seconds_queued", lambda thread: now.queued)
    now.spent = RunningClock(1).spent
    return now


def test_a_sleep_counts(clock):
    clock.wall = 0.5

    assert clock.spent(0.5) == 0.5
    assert clock.spent(0.5) == 0


def test_of_the_time_beyond_a_sleep_only_cpu_time_counts(clock):
    """The process was stopped for 8 seconds, or code held the interpreter lock for 1 of them."""
    clock.wall, clock.cpu = 8.5, 1.0

    assert clock.spent(0.5) == 1.5


def test_time_without_a_processor_does_not_count(clock):
    clock.wall, clock.cpu, clock.queued = 8.0, 1.0, 7.5

    assert clock.spent(8.0) == 0.5


def test_the_kernel_counts_the_time_without_a_processor():
    queued = blocking_step._seconds_queued(threading.get_native_id())

    assert 0 <= queued < time.monotonic()


def test_nothing_is_subtracted_where_the_kernel_does_not_say():
    assert blocking_step._seconds_queued(0) == 0
