"""How long a server is tried again."""

from __future__ import annotations

import trio

from conductor.network.backoff import REFUSED_TIMEOUT, Backoff


async def failures(backoff: Backoff) -> list[float]:
    """When it was tried again, until it was given up."""
    began, times = trio.current_time(), []
    while await backoff.wait_to_retry():
        times.append(trio.current_time() - began)
    return times


async def test_by_default_the_first_failure_is_the_last(autojump_clock):
    assert await failures(Backoff()) == []


async def test_the_waits_get_longer_and_end_when_nothing_is_kept_any_more(autojump_clock):
    times = await failures(Backoff(keep=60))
    waits = [later - earlier for earlier, later in zip([0.0, *times], times, strict=False)]

    assert 0.05 <= waits[0] <= 0.1
    assert waits[:5] == sorted(waits[:5])
    assert 60 <= times[-1] < 70
    assert max(waits) <= 10


async def test_an_answer_makes_it_new(autojump_clock):
    backoff = Backoff(keep=1)
    await failures(backoff)
    backoff.reset()

    assert await backoff.wait_to_retry()


async def test_where_nobody_listens_it_is_given_up_much_sooner(autojump_clock):
    backoff, began = Backoff(keep=60), trio.current_time()
    while await backoff.wait_to_retry(refused=True):
        pass

    assert REFUSED_TIMEOUT <= trio.current_time() - began < 3 * REFUSED_TIMEOUT


async def test_somebody_who_does_not_answer_is_not_nobody(autojump_clock):
    backoff, began = Backoff(keep=60), trio.current_time()
    attempts = 0
    while await backoff.wait_to_retry(refused=attempts % 2 == 0):
        attempts += 1

    assert trio.current_time() - began >= 60
