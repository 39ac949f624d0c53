"""Deadlines that a stalled process does not miss."""

from __future__ import annotations

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from conductor.network.running_time import move_on_after_running


async def test_a_block_is_cancelled_in_time(autojump_clock: MockClock):
    began = trio.current_time()
    async with move_on_after_running(5):
        await trio.sleep_forever()

    assert trio.current_time() - began == pytest.approx(5)


async def test_what_came_during_a_stall_is_read_before_the_deadline(mock_clock: MockClock):
    answered = trio.Event()
    seen = []

    async def ask() -> None:
        async with move_on_after_running(5):
            await answered.wait()
            await trio.lowlevel.checkpoint()
            seen.append("answer")

    async with trio.open_nursery() as nursery:
        nursery.start_soon(ask)
        await wait_all_tasks_blocked()
        mock_clock.jump(3600)
        answered.set()

    assert seen == ["answer"]
