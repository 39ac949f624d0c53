"""What was cancelled and goes on: the decisions, without processes and clocks."""

import pytest

from conductor.components.alarm import NEVER
from conductor.components.cancellation import Cancellations, TurnOverdue, WithdrawnOverdue
from conductor.connection.calls import Call


def prompt():
    return Call("session/prompt", source=None)  # type: ignore[arg-type]


@pytest.fixture
def agent():
    return Cancellations(10.0)


def test_a_cancelled_turn_is_overdue_after_its_time_and_again_until_it_ends(agent):
    call = prompt()
    agent.prompted(call, "s")

    assert agent.cancelled("s", 100.0) == 110.0
    assert agent.due(109.9) == []
    assert agent.due(110.0) == [TurnOverdue("s", (call,), running=False)]
    assert agent.next_deadline() == 120.0
    agent.answered(call)
    assert agent.next_deadline() == NEVER


def test_a_second_cancellation_gives_no_more_time(agent):
    agent.prompted(prompt(), "s")
    agent.cancelled("s", 100.0)

    assert agent.cancelled("s", 105.0) == 110.0


def test_a_prompt_after_the_cancellation_is_another_turn(agent):
    old, new = prompt(), prompt()
    agent.prompted(old, "s")
    agent.cancelled("s", 100.0)
    agent.prompted(new, "s")

    assert agent.due(110.0) == [TurnOverdue("s", (old,), running=False)]
    agent.answered(old)
    assert agent.next_deadline() == NEVER
    assert agent.cancelled("s", 120.0) == 130.0


def test_what_is_not_open_or_of_another_session_cannot_be_overdue(agent):
    call = prompt()
    agent.prompted(call, "s")
    agent.answered(call)
    agent.prompted(prompt(), "other")
    agent.prompted(prompt(), None)

    assert agent.cancelled("s", 100.0) == NEVER


def test_a_turn_of_version_2_lasts_until_the_agent_is_idle(agent):
    agent.reported("s", "running")
    agent.reported("s", "requires_action")
    agent.cancelled("s", 100.0)

    assert agent.due(110.0) == [TurnOverdue("s", (), running=True)]
    agent.reported("s", "idle")
    assert agent.next_deadline() == NEVER
    assert agent.cancelled("s", 120.0) == NEVER


def test_a_withdrawn_request_is_overdue_by_itself(agent):
    load, call = Call("session/load", source=None), prompt()  # type: ignore[arg-type]
    agent.prompted(call, "s")
    agent.withdrawn(load, 100.0)
    agent.withdrawn(call, 101.0)

    assert agent.due(110.0) == [WithdrawnOverdue(load, None)]
    assert agent.due(111.0) == [WithdrawnOverdue(call, "s")]


def test_nothing_of_a_process_that_is_gone_is_overdue(agent):
    agent.prompted(prompt(), "s")
    agent.reported("t", "running")
    agent.cancelled("s", 100.0)
    agent.forget()

    assert agent.next_deadline() == NEVER
    assert agent.cancelled("t", 100.0) == NEVER
