"""Prompts of a client of version 1, which end by a state of version 2."""

from __future__ import annotations

import pytest

from proxies.v1_v2.open_prompts import OpenPrompt, OpenPrompts

IDLE = {"state": "idle", "stopReason": "end_turn"}


@pytest.fixture
def answers():
    return []


@pytest.fixture
def turn(answers):
    return OpenPrompt(lambda *answer: answers.append(answer))


@pytest.fixture
async def turns(turn):
    turns = OpenPrompts()
    turns.begin(turn)
    return turns


async def test_an_idle_state_from_before_the_prompt_does_not_end_it(turns, turn, answers):
    turns.state(IDLE)
    assert (answers, turns.waiting) == ([], [turn])

    turns.state({"state": "running"})
    turns.state(IDLE)
    assert answers == []
    turns.accepted(turn, {"messageId": "m", "x": 1})
    assert (answers, turns.waiting) == ([({"stopReason": "end_turn", "x": 1}, None)], [])


async def test_an_accepted_prompt_ends_without_a_running_state(turns, turn, answers):
    turns.accepted(turn, {})
    turns.state({**IDLE, "stopReason": "new", "usage": {"n": 1}, "state": "idle"})

    assert answers == [({"stopReason": "end_turn", "usage": {"n": 1}}, None)]


async def test_an_idle_state_that_is_reported_again_with_background_work_ends_nothing(
    turns, turn, answers
):
    turns.state({"state": "running"})
    turns.state({"state": "idle"})
    turns.accepted(turn, {})
    assert len(answers) == 1
    answers.clear()
    turns.begin(turn)
    turns.accepted(turn, {})
    turns.state({**IDLE, "background": [{"type": "terminal", "terminalId": "t"}]})
    assert answers == []

    turns.state({"state": "running", "background": []})
    turns.state({**IDLE, "background": []})
    assert answers == [({"stopReason": "end_turn"}, None)]


async def test_an_agent_that_never_reports_that_it_runs_does_not_hold_the_prompt(
    turns, turn, answers
):
    turns.accepted(turn, {})
    turns.state({**IDLE, "background": []})

    assert answers == [({"stopReason": "end_turn"}, None)]


async def test_work_from_before_the_prompt_does_not_end_it(turns, turn, answers):
    turns.accepted(turn, {"stopReason": "end_turn"})
    answers.clear()
    turns.state({"state": "running"})
    turns.begin(turn)
    turns.state({"state": "running", "background": []})
    turns.state(IDLE)
    assert answers == []

    turns.accepted(turn, {})
    turns.state({"state": "running"})
    turns.state(IDLE)
    assert answers == [({"stopReason": "end_turn"}, None)]


async def test_a_prompt_that_is_accepted_while_the_agent_works_ends_with_this_work(
    turns, turn, answers
):
    turns.accepted(turn, {"stopReason": "end_turn"})
    answers.clear()
    turns.state({"state": "running"})
    turns.begin(turn)
    turns.accepted(turn, {})
    turns.state({**IDLE, "background": []})

    assert answers == [({"stopReason": "end_turn"}, None)]


@pytest.mark.parametrize("state", ["requires_action", "unknown", "_new"])
async def test_other_states_end_no_prompt(turns, turn, answers, state):
    turns.accepted(turn, {})
    turns.state({"state": "running"})
    turns.state({"state": state})
    assert answers == []

    turns.state(IDLE)
    assert answers == [({"stopReason": "end_turn"}, None)]


async def test_a_prompt_that_is_cancelled_before_work_begins_ends_by_an_idle_state(
    turns, turn, answers
):
    turns.accepted(turn, {"stopReason": "end_turn"})
    turns.state({"state": "running"})
    turns.state(IDLE)
    turns.begin(turn)
    turns.accepted(turn, {})
    turns.state(IDLE)
    assert len(answers) == 1

    turns.cancelled()
    turns.state({"state": "idle", "stopReason": "cancelled"})
    assert answers[1:] == [({"stopReason": "cancelled"}, None)]


async def test_states_of_a_history_end_no_prompt_but_the_last_one_is_the_present(
    turns, turn, answers
):
    turns.accepted(turn, {})
    turns.state({"state": "running"})
    turns.replay_begins()
    turns.state(IDLE)
    turns.state({"state": "running"})
    turns.state(IDLE)
    assert answers == []
    turns.replay_ends()

    assert answers == [({"stopReason": "end_turn"}, None)]


@pytest.mark.parametrize("meta", [{"_meta": {"acp-conductor/handled": True}}, {}])
async def test_an_answer_may_be_the_end(turns, turn, answers, meta):
    turns.accepted(turn, {"messageId": "m", **(meta or {"stopReason": "refusal", "usage": 1})})

    end = {"stopReason": "end_turn", **meta} if meta else {"stopReason": "refusal", "usage": 1}
    assert answers == [(end, None)]


async def test_the_answer_has_what_the_agent_told_about_prompt_and_turn(turns, turn, answers):
    turns.accepted(turn, {"messageId": "m", "_meta": {"a": 1, "b": 1}, "x": 1})
    turns.state({**IDLE, "_meta": {"b": 2}, "y": [2], "background": None})

    meta = {"a": 1, "b": 2}
    assert answers == [({"stopReason": "end_turn", "_meta": meta, "x": 1, "y": [2]}, None)]


async def test_a_turn_that_ends_with_an_error_is_answered_with_it(turns, turn, answers):
    error = {"code": -1, "message": "no"}
    turns.accepted(turn, {})
    turns.state({"state": "idle", "stopReason": "error", "error": error})

    assert answers == [(None, error)]


async def test_only_the_first_message_after_a_prompt_is_its_echo(turns):
    assert turns.is_echo({"messageId": "1"})
    assert turns.is_echo({"messageId": "1"})
    assert not turns.is_echo({"messageId": "2"})
    assert not turns.is_echo({})


async def test_a_refused_prompt_has_no_end(turns, turn, answers):
    turns.refused(turn)
    turns.state({"state": "running"})
    turns.state(IDLE)

    assert (answers, turns.waiting) == ([], [])
