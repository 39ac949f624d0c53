"""How long a server is tried again."""

from __future__ import annotations

import trio

from conductor.remote.perseverance import NOBODY, Perseverance


async def failures(persevering: Perseverance) -> list[float]:
    """When it was tried again, until it was given up."""
    began, times = trio.current_time(), []
    while await persevering.try_again():
        times.append(trio.current_time() - began)
    return times


async def test_by_default_the_first_failure_is_the_last(autojump_clock):
    assert await failures(Perseverance()) == []


async def test_the_waits_get_longer_and_end_when_nothing_is_kept_any_more(autojump_clock):
    times = await failures(Perseverance(keep=60))
    waits = [later - earlier for earlier, later in zip([0.0, *times], times, strict=False)]

    assert 0.05 <= waits[0] <= 0.1
    assert waits[:5] == sorted(waits[:5])
    assert 60 <= times[-1] < 70
    assert max(waits) <= 10


async def test_an_answer_makes_it_new(autojump_clock):
    persevering = Perseverance(keep=1)
    await failures(persevering)
    persevering.reached()

    assert await persevering.try_again()


async def test_where_nobody_listens_it_is_given_up_much_sooner(autojump_clock):
    persevering, began = Perseverance(keep=60), trio.current_time()
    while await persevering.try_again(nobody=True):
        pass

    assert NOBODY <= trio.current_time() - began < 3 * NOBODY


async def test_somebody_who_does_not_answer_is_not_nobody(autojump_clock):
    persevering, began = Perseverance(keep=60), trio.current_time()
    attempts = 0
    while await persevering.try_again(nobody=attempts % 2 == 0):
        attempts += 1

    assert trio.current_time() - began >= 60
