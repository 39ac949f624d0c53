"""A lane delivers one message at a time, in order."""

from __future__ import annotations

from conductor.connection.calls import Call
from conductor.connection.lanes import Answer, Lane, Notification, Request


def test_the_first_message_needs_somebody_to_take_it_the_next_do_not():
    lane = Lane("toward the agent")
    first, second = Notification("a", b"{}"), Request(Call("b", None), "b", None)

    assert lane.put(first)
    assert not lane.put(second)
    assert (lane.take(), lane.take(), lane.held) == (first, second, True)


def test_a_lane_is_let_go_when_it_is_empty():
    lane = Lane("toward the agent")
    lane.put(Notification("a", None))
    lane.take()

    assert lane.take() is None
    assert not lane.held
    assert lane.put(Notification("b", None))


def test_a_lane_knows_how_much_waits_in_it():
    lane = Lane("toward the client")
    call = Call("m", None)
    for item in [
        Notification("a", b"123"),
        Request(call, "b", None),
        Answer(call, b"1234", None),
        Answer(call, None, b"12"),
    ]:
        lane.put(item)
    assert lane.size == 9

    while lane.take():
        pass

    assert (lane.size, lane.turns) == (0, 4)
