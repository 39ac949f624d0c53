"""Prompts of a client of version 1, which end by a state of version 2."""

from __future__ import annotations

import pytest

from proxies.v1_v2.of_v1_client import OpenPrompt, OpenPrompts

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


async def test_the_answer_has_what_the_agent_told_about_prompt_and_turn(turns, turn, answers):
    turns.accepted(turn, {"messageId": "m", "_meta": {"a": 1, "b": 1}, "x": 1})
    turns.state({**IDLE, "_meta": {"b": 2}, "y": [2], "background": None})

    meta = {"a": 1, "b": 2}
    assert answers == [({"stopReason": "end_turn", "_meta": meta, "x": 1, "y": [2]}, None)]


async def test_only_the_first_message_after_a_prompt_is_its_echo(turns):
    assert turns.is_echo({"messageId": "1"})
    assert turns.is_echo({"messageId": "1"})
    assert not turns.is_echo({"messageId": "2"})
    assert not turns.is_echo({})
