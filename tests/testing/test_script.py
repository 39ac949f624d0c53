"""A mistake in a script is an error that names the step and tells what to write."""

from __future__ import annotations

from functools import partial

import pytest

from conductor.errors import RequestError
from conductor.testing import FakeAgent
from conductor.testing.script import ScriptError, check_turn


async def step(session):
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
    check_turn(turn, 1)


@pytest.mark.parametrize(
    ("turn", "expected"),
    [
        (
            "hello",
            "turn 3 of the FakeAgent is 'hello', which is a step: a turn is a list of",
        ),
        (step, "which is a step: a turn is a list of steps. Write turns=[[…]]"),
        (5, "turn 3 of the FakeAgent is 5 (int). It must be a list of steps. A step is a text,"),
        (
            ["a", 5],
            "step 2 of turn 3 of the FakeAgent is 5 (int). A step is a text, an",
        ),
        ([{"kind": "plan"}], "has neither 'sessionUpdate', as an update has, nor 'stopReason'"),
        (["a" * 80, b"b" * 80], "step 2 of turn 3 of the FakeAgent is b'bbbbbb"),
    ],
)
def test_a_mistake_is_named_with_its_remedy(turn, expected):
    with pytest.raises(ScriptError) as caught:
        check_turn(turn, 3)

    assert expected in str(caught.value)


def test_a_called_function_is_no_step():
    with pytest.raises(ScriptError, match=r"is a coroutine. Write step without \(…\)"):
        check_turn([step("session-1")], 1)


def test_a_mistake_is_raised_in_the_line_that_makes_or_sets_the_script():
    with pytest.raises(ScriptError, match=r"turn 2 of the FakeAgent is 'b'"):
        FakeAgent(turns=[["a"], "b"])
    agent = FakeAgent()
    with pytest.raises(ScriptError, match=r"turns must be a list of turns, not \(\[5\],\)"):
        agent.turns = ([5],)
