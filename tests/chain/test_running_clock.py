"""The time that counts for the watchdog's thread."""

from __future__ import annotations

import threading
import time
from types import SimpleNamespace

import pytest

from conductor.chain import watchdog
from conductor.chain.watchdog import RunningClock


@pytest.fixture
def clock(monkeypatch):
    """The clocks of a process, and a `RunningClock` that starts at their zero."""
    now = SimpleNamespace(wall=0.0, cpu=0.0, queued=0.0)
    clocks = SimpleNamespace(monotonic=lambda: now.wall, process_time=lambda: now.cpu)
    monkeypatch.setattr(watchdog, "time", clocks)
    monkeypatch.setattr(watchdog, "_seconds_queued", lambda thread: now.queued)
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
    queued = watchdog._seconds_queued(threading.get_native_id())

    assert 0 <= queued < time.monotonic()


def test_nothing_is_subtracted_where_the_kernel_does_not_say():
    assert watchdog._seconds_queued(0) == 0
