"""A mistake in a script is an error that names the step and tells what to write."""

from __future__ import annotations

from functools import partial

import pytest

from conductor.errors import RequestError
from conductor.testing import FakeAgent
from conductor.testing.script import ScriptError, check_turn, function_place, step_label


async def step(session):
    pass


async def step_of_nothing():
    pass


@pytest.mark.parametrize(
    "turn",
    [
        [],
        ("text", {"sessionUpdate": "plan", "entries": []}, {"stopReason": "refusal"}),
        [RequestError(-32603, "no")],
        [step, lambda session: None, partial(step), [].append, print],
    ],
)
def test_what_can_be_played_is_accepted(turn):
    check_turn(turn, 1, "the agent")


@pytest.mark.parametrize(
    ("turn", "expected"),
    [
        ("hello", "turn 3 of the agent is 'hello', which is a step: a turn is a list of steps."),
        (step, "which is a step: a turn is a list of steps. Write turns=[[…]]"),
        (5, "turn 3 of the agent is 5 (int). It must be a list of steps. A step is a text,"),
        (["a", 5], "step 2 of turn 3 of the agent is 5 (int). A step is a text, an update such"),
        ([{"kind": "plan"}], "has neither 'sessionUpdate', as an update has, nor 'stopReason'"),
        (
            [{"sessionId": "1", "update": {"sessionUpdate": "plan"}}],
            "nor 'stopReason', as the end of a turn. Write what is in its 'update'",
        ),
        (["a" * 80, b"b" * 80], "step 2 of turn 3 of the agent is b'bbbbbb"),
        (
            [step_of_nothing],
            "is a function that cannot be called with the session id: too many positional "
            "arguments (step_of_nothing, test_script.py:18). Write `async def step(session):`",
        ),
    ],
)
def test_a_mistake_is_named_with_its_remedy(turn, expected):
    with pytest.raises(ScriptError) as caught:
        check_turn(turn, 3, "the agent")

    assert expected in str(caught.value)


def test_a_called_function_is_no_step():
    with pytest.raises(ScriptError, match=r"is a coroutine. Write step without \(…\)"):
        check_turn([step("session-1")], 1, "the agent")


def test_a_mistake_is_raised_in_the_line_that_makes_the_agent():
    with pytest.raises(ScriptError) as caught:
        FakeAgent(turns=[["a"], "b"])

    place = f"test_script.py:{caught.tb.tb_lineno}"
    assert f"turn 2 of the FakeAgent of {place} is 'b'" in str(caught.value)


def test_a_mistake_is_raised_in_the_line_that_sets_the_script():
    agent = FakeAgent()
    with pytest.raises(ScriptError) as caught:
        agent.turns = ([5],)
    assert "turns must be a list of turns, not ([5],)" in str(caught.value)
    with pytest.raises(ScriptError) as caught:
        agent.turns = [[5]]

    assert f"of the FakeAgent of test_script.py:{caught.tb.tb_lineno} is 5" in str(caught.value)


def test_a_step_is_named_with_the_place_of_its_function():
    assert step_label(1, 3, "the agent") == "step 2 of turn 3 of the agent"
    assert step_label(0, 1, "x", step) == "step 1 of turn 1 of x (step, test_script.py:14)"
    assert function_place(print) is None
    assert function_place(5) is None
