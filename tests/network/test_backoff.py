"""Reconnect backoff."""

from __future__ import annotations

import trio

from conductor.network.backoff import REFUSED_TIMEOUT, Backoff


async def failures(backoff: Backoff) -> list[float]:
    """The times of all attempts until the last."""
    began, times = trio.current_time(), []
    while await backoff.wait_to_retry():
        times.append(trio.current_time() - began)
    return times


async def test_by_default_the_first_failure_is_the_last(autojump_clock):
    assert await failures(Backoff()) == []


async def test_delays_grow_and_end_when_the_server_has_dropped_its_state(autojump_clock):
    times = await failures(Backoff(keep=60))
    waits = [later - earlier for earlier, later in zip([0.0, *times], times, strict=False)]

    assert 0.05 <= waits[0] <= 0.1
    assert waits[:5] == sorted(waits[:5])
    assert 60 <= times[-1] < 70
    assert max(waits) <= 10


async def test_a_response_resets_the_backoff(autojump_clock):
    backoff = Backoff(keep=1)
    await failures(backoff)
    backoff.reset()

    assert await backoff.wait_to_retry()


async def test_retries_after_connection_refused_end_sooner(autojump_clock):
    backoff, began = Backoff(keep=60), trio.current_time()
    while await backoff.wait_to_retry(refused=True):
        pass

    assert REFUSED_TIMEOUT <= trio.current_time() - began < 3 * REFUSED_TIMEOUT


async def test_a_timeout_is_not_treated_as_connection_refused(autojump_clock):
    backoff, began = Backoff(keep=60), trio.current_time()
    attempts = 0
    while await backoff.wait_to_retry(refused=attempts % 2 == 0):
        attempts += 1

    assert trio.current_time() - began >= 60
