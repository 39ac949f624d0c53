"""Cancelled turns that do not end: the decisions. Pure."""

from conductor.acp.turns import Turns
from conductor.jsonrpc.in_flight import InFlightRequest
from conductor.supervision.cancel_timeouts import CancelTimeouts, RequestOverdue, TurnOverdue
from conductor.supervision.deadline_timer import NEVER


def prompt():
    return InFlightRequest("session/prompt", source=None)  # type: ignore[arg-type]


class Agent:
    """The turns of an agent's session, and its deadlines."""

    def __init__(self, version=1):
        self.hop = Turns(version)
        self.turns = self.hop.of("s")
        self.deadlines = CancelTimeouts(10.0, self.hop)
        self.overdue = self.deadlines.overdue
        self.next_deadline = self.deadlines.next_deadline

    def prompt(self):
        call = prompt()
        self.turns.prompt_sent(call, 0.0)
        return call

    def answer(self, call, accepted=True):
        self.turns.prompt_answered(call, 0.0, accepted=accepted)

    def state(self, *states):
        for state in states:
            self.turns.state(state, 0.0)

    def cancel(self, now):
        return self.deadlines.cancel_sent("s", now)


def test_a_cancelled_turn_is_overdue_after_its_time_and_again_until_it_ends():
    agent = Agent()
    call = agent.prompt()

    assert agent.cancel(100.0) == 110.0
    assert agent.overdue(109.9) == []
    assert agent.overdue(110.0) == [TurnOverdue("s", (call,), running=False)]
    assert agent.next_deadline() == 120.0
    agent.answer(call)
    assert agent.next_deadline() == NEVER


def test_a_second_cancellation_gives_no_more_time():
    agent = Agent()
    agent.prompt()
    agent.cancel(100.0)

    assert agent.cancel(105.0) == 110.0


def test_a_prompt_after_the_cancellation_is_another_turn():
    agent = Agent()
    old = agent.prompt()
    agent.cancel(100.0)
    new = agent.prompt()

    assert agent.overdue(110.0) == [TurnOverdue("s", (old,), running=False)]
    agent.answer(old)
    assert agent.next_deadline() == NEVER
    assert agent.cancel(120.0) == 130.0
    assert agent.overdue(130.0) == [TurnOverdue("s", (new,), running=False)]


def test_a_prompt_that_is_cancelled_later_is_overdue_at_its_own_time():
    agent = Agent()
    old = agent.prompt()
    agent.cancel(100.0)
    new = agent.prompt()
    agent.cancel(105.0)

    assert agent.overdue(110.0) == [TurnOverdue("s", (old,), running=False)]
    assert agent.next_deadline() == 115.0
    assert agent.overdue(115.0) == [TurnOverdue("s", (old, new), running=False)]


def test_the_deadline_of_an_ended_turn_is_not_that_of_the_next():
    agent = Agent()
    old = agent.prompt()
    agent.cancel(100.0)
    agent.answer(old)
    agent.prompt()
    assert agent.cancel(105.0) == 115.0

    new = agent.prompt()
    agent.cancel(108.0)
    agent.answer(agent.turns.prompts[0].key)
    assert agent.overdue(115.0) == []
    assert agent.overdue(118.0) == [TurnOverdue("s", (new,), running=False)]


def test_ended_turns_and_other_sessions_are_never_overdue():
    agent = Agent()
    agent.answer(agent.prompt())
    agent.hop.of("other").prompt_sent(prompt(), 0.0)

    assert agent.cancel(100.0) == NEVER
    assert agent.deadlines.cancel_sent("unknown", 100.0) == NEVER


def test_a_turn_of_version_2_lasts_until_the_agent_is_idle():
    agent = Agent(version=2)
    agent.state("running", "requires_action")
    agent.cancel(100.0)

    assert agent.overdue(110.0) == [TurnOverdue("s", (), running=True)]
    agent.state("idle")
    assert agent.next_deadline() == NEVER
    assert agent.cancel(120.0) == NEVER


def test_a_prompt_of_version_2_that_is_accepted_is_ended_by_a_state():
    agent = Agent(version=2)
    accepted, held = agent.prompt(), agent.prompt()
    agent.answer(accepted)
    agent.cancel(100.0)

    assert agent.overdue(110.0) == [TurnOverdue("s", (held,), running=True)]


def test_work_that_began_after_the_cancellation_of_a_held_prompt_is_not_ended():
    agent = Agent(version=2)
    held = agent.prompt()
    agent.cancel(100.0)
    agent.answer(agent.prompt())
    agent.state("running")

    assert agent.overdue(110.0) == [TurnOverdue("s", (held,), running=False)]


def test_nothing_is_due_while_it_is_not_known_whether_a_turn_runs():
    agent = Agent(version=2)
    agent.state("running")
    agent.cancel(100.0)
    agent.state("unknown")

    assert agent.overdue(110.0) == []
    agent.state("running")
    assert agent.overdue(120.0) == [TurnOverdue("s", (), running=True)]


def test_a_withdrawn_request_is_overdue_by_itself():
    agent = Agent()
    load, call = InFlightRequest("session/load", source=None), agent.prompt()  # type: ignore[arg-type]
    call.session = "s"
    agent.deadlines.cancel_request_sent(load, 100.0)
    agent.deadlines.cancel_request_sent(call, 101.0)

    assert agent.overdue(110.0) == [RequestOverdue(load, None)]
    assert agent.overdue(111.0) == [RequestOverdue(call, "s")]


def test_turns_of_an_ended_process_are_never_overdue():
    agent = Agent(version=2)
    agent.prompt()
    agent.state("running")
    agent.cancel(100.0)
    agent.deadlines.forget()

    assert agent.next_deadline() == NEVER
    assert agent.cancel(100.0) == NEVER
