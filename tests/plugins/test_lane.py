"""A lane delivers one message at a time, in order."""

from __future__ import annotations

from conductor.jsonrpc.in_flight import InFlightRequest
from conductor.plugins.lane import Lane, LaneNotification, LaneRequest, LaneResponse


def test_only_the_first_message_in_a_lane_needs_a_worker():
    lane = Lane("toward the agent")
    first, second = LaneNotification("a", b"{}"), LaneRequest(InFlightRequest("b", None), "b", None)

    assert lane.put(first)
    assert not lane.put(second)
    assert (lane.take(), lane.take(), lane.held) == (first, second, True)


def test_an_empty_lane_is_released():
    lane = Lane("toward the agent")
    lane.put(LaneNotification("a", None))
    lane.take()

    assert lane.take() is None
    assert not lane.held
    assert lane.put(LaneNotification("b", None))


def test_a_lane_knows_how_much_waits_in_it():
    lane = Lane("toward the client")
    call = InFlightRequest("m", None)
    for item in [
        LaneNotification("a", b"123"),
        LaneRequest(call, "b", None),
        LaneResponse(call, b"1234", None),
        LaneResponse(call, None, b"12"),
    ]:
        lane.put(item)
    assert lane.size == 9

    while lane.take():
        pass

    assert (lane.size, lane.delivered) == (0, 4)


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
