"""Bytes that wait in a lane, and the bound of those that handlers have."""

from __future__ import annotations

import pytest
from support.peers.port import Scripted, forward_unchanged, hop

from conductor.plugins import dispatch
from conductor.plugins.lane import Lane, LaneNotification


@pytest.fixture(autouse=True)
def small_limit(monkeypatch):
    monkeypatch.setattr(dispatch, "_MAX_HANDLED_BYTES", 1000)


async def test_requests_over_the_limit_are_refused_until_others_are_answered():
    async with hop(Scripted(forward_unchanged)) as on_hop:
        large = {"n": "x" * 600}
        on_hop.client.ask("_x", large)
        on_hop.client.ask("_x", large)
        on_hop.client.ask("_x", {"n": 1})
        await on_hop.settle()
        assert on_hop.client.heard == [("answer", "_x", -32600)]

        for _ in range(2):
            on_hop.agent.answer("real")
        await on_hop.settle()
        on_hop.client.ask("_x", large)
        await on_hop.settle()
        on_hop.agent.answer("again")
        await on_hop.settle()

        assert [what[2] for what in on_hop.client.heard] == [-32600, "real", "real", "again"]


async def test_one_request_may_be_larger_than_the_limit():
    async with hop(Scripted(forward_unchanged)) as on_hop:
        on_hop.client.ask("_x", {"n": "x" * 2000})
        await on_hop.settle()
        on_hop.agent.answer("real")
        await on_hop.settle()
        assert on_hop.client.heard == [("answer", "_x", "real")]


def test_a_lane_counts_the_bytes_that_wait():
    lane = Lane("x")
    first, second, third = (LaneNotification("m", b"x" * n) for n in (1, 10, 100))

    assert lane.put(first)
    assert not lane.put_batch([second, third])
    assert lane.size == 111
    assert [lane.take(), lane.take()] == [first, second]
    assert not lane.put_back([first, second])
    assert lane.size == 111
    assert [lane.take(), lane.take(), lane.take(), lane.take()] == [first, second, third, None]
    assert (lane.size, lane.held, lane.delivered) == (0, False, 5)
