"""Cancelled turns that do not end: the decisions. Pure."""

import pytest

from conductor.jsonrpc.in_flight import InFlightRequest
from conductor.supervision.cancel_timeouts import CancelTimeouts, RequestOverdue, TurnOverdue
from conductor.supervision.deadline_timer import NEVER


def prompt():
    return InFlightRequest("session/prompt", source=None)  # type: ignore[arg-type]


@pytest.fixture
def agent():
    return CancelTimeouts(10.0)


def test_a_cancelled_turn_is_overdue_after_its_time_and_again_until_it_ends(agent):
    call = prompt()
    agent.prompt_sent(call, "s")

    assert agent.cancel_sent("s", 100.0) == 110.0
    assert agent.overdue(109.9) == []
    assert agent.overdue(110.0) == [TurnOverdue("s", (call,), running=False)]
    assert agent.next_deadline() == 120.0
    agent.response_received(call)
    assert agent.next_deadline() == NEVER


def test_a_second_cancellation_gives_no_more_time(agent):
    agent.prompt_sent(prompt(), "s")
    agent.cancel_sent("s", 100.0)

    assert agent.cancel_sent("s", 105.0) == 110.0


def test_a_prompt_after_the_cancellation_is_another_turn(agent):
    old, new = prompt(), prompt()
    agent.prompt_sent(old, "s")
    agent.cancel_sent("s", 100.0)
    agent.prompt_sent(new, "s")

    assert agent.overdue(110.0) == [TurnOverdue("s", (old,), running=False)]
    agent.response_received(old)
    assert agent.next_deadline() == NEVER
    assert agent.cancel_sent("s", 120.0) == 130.0


def test_ended_turns_and_other_sessions_are_never_overdue(agent):
    call = prompt()
    agent.prompt_sent(call, "s")
    agent.response_received(call)
    agent.prompt_sent(prompt(), "other")
    agent.prompt_sent(prompt(), None)

    assert agent.cancel_sent("s", 100.0) == NEVER


def test_a_turn_of_version_2_lasts_until_the_agent_is_idle(agent):
    agent.state_reported("s", "running")
    agent.state_reported("s", "requires_action")
    agent.cancel_sent("s", 100.0)

    assert agent.overdue(110.0) == [TurnOverdue("s", (), running=True)]
    agent.state_reported("s", "idle")
    assert agent.next_deadline() == NEVER
    assert agent.cancel_sent("s", 120.0) == NEVER


def test_a_turn_of_version_2_is_unfinished_from_its_prompt_to_idle(agent):
    call = prompt()
    agent.prompt_sent(call, "s")
    assert agent.unfinished == set()  # the open request has the error of a failure
    agent.prompt_accepted(call)
    agent.response_received(call)
    assert agent.unfinished == {"s"}
    agent.state_reported("s", "running")
    assert agent.unfinished == {"s"}
    agent.state_reported("s", "idle")
    assert agent.unfinished == set()


def test_a_prompt_of_version_2_that_is_answered_after_its_turn_leaves_nothing_unfinished(agent):
    call = prompt()
    agent.prompt_sent(call, "s")
    agent.state_reported("s", "running")
    agent.state_reported("s", "idle")
    agent.prompt_accepted(call)
    agent.response_received(call)
    assert agent.unfinished == set()


def test_a_prompt_sent_before_the_state_idle_of_an_earlier_turn_is_not_ended_by_it(agent):
    call = prompt()
    agent.prompt_sent(call, "s")
    agent.state_reported("s", "idle")
    agent.prompt_accepted(call)
    agent.response_received(call)
    assert agent.unfinished == {"s"}


def test_a_withdrawn_request_is_overdue_by_itself(agent):
    load, call = InFlightRequest("session/load", source=None), prompt()  # type: ignore[arg-type]
    agent.prompt_sent(call, "s")
    agent.cancel_request_sent(load, 100.0)
    agent.cancel_request_sent(call, 101.0)

    assert agent.overdue(110.0) == [RequestOverdue(load, None)]
    assert agent.overdue(111.0) == [RequestOverdue(call, "s")]


def test_turns_of_an_ended_process_are_never_overdue(agent):
    agent.prompt_sent(prompt(), "s")
    agent.state_reported("t", "running")
    agent.cancel_sent("s", 100.0)
    agent.forget()

    assert agent.next_deadline() == NEVER
    assert agent.cancel_sent("t", 100.0) == NEVER
