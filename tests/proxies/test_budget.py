from __future__ import annotations

import pytest

from conductor.testing import FakeAgent
from proxies._commands import HANDLED
from proxies.budget import Budget, Limits

REFUSED = {"stopReason": "refusal", "_meta": {HANDLED: True}}
ENDED = {"stopReason": "end_turn"}


def cost(amount, currency="USD"):
    cost = {"amount": amount, "currency": currency}
    return {"sessionUpdate": "usage_update", "used": 1, "size": 2, "cost": cost}


def tokens(count):
    return {**ENDED, "usage": {"totalTokens": count, "inputTokens": count, "outputTokens": 0}}


async def test_prompts_are_refused_when_the_session_had_its_turns(chain):
    agent = FakeAgent()
    async with chain(Budget(Limits(turns=2), warn_at=1), agent) as client:
        await client.initialize()
        one, two = [await client.new_session("/work") for _ in range(2)]
        answers = [await client.prompt(one, "hi") for _ in range(4)]
        assert answers == [ENDED, ENDED, REFUSED, REFUSED]
        assert client.transcript.text(one).endswith(
            "Refused: the budget is used up (2 of 2 turns in this session)." * 2
        )
        assert await client.prompt(two, "hi") == ENDED

    assert len(agent.transcript.of("session/prompt", "request")) == 3


async def test_a_day_counts_all_sessions_and_is_kept_in_its_file(chain, tmp_path):
    answers = []
    for turns in [[tokens(60), tokens(30)], [tokens(60), tokens(1)]]:
        proxy = Budget(day=Limits(tokens=100), file=tmp_path / "day.json")
        async with chain(proxy, FakeAgent(turns=[[turn] for turn in turns])) as client:
            await client.initialize()
            for _ in turns:
                answers.append(await client.prompt(await client.new_session("/work"), "hi"))
            told = client.transcript.text()

    assert answers == [tokens(60), tokens(30), tokens(60), REFUSED]
    assert "(150 of 100 tokens today)" in told


async def test_a_turn_that_runs_into_the_limit_is_cancelled_once(chain):
    async def cancelled(session):
        await agent.transcript.wait("session/cancel")

    agent = FakeAgent()
    agent.turns.append([cost(0.4), cost(1.2), cost(1.3), cancelled, {"stopReason": "cancelled"}])
    async with chain(Budget(Limits(cost=1)), agent) as client:
        await client.initialize()
        session = await client.new_session("/work")
        assert await client.prompt(session, "hi") == {"stopReason": "cancelled"}
        assert client.transcript.text() == (
            "Cancelled: the budget is used up (1.2 of 1 cost in this session).\n"
        )
        assert await client.prompt(session, "hi") == REFUSED

    assert len(agent.transcript.of("session/cancel")) == 1


async def test_the_user_is_told_once_when_little_is_left(chain):
    agent = FakeAgent(turns=[[cost(0.7)], [cost(0.8)], [cost(0.9)]])
    async with chain(Budget(Limits(cost=1)), agent) as client:
        await client.initialize()
        session = await client.new_session("/work")
        for _ in range(3):
            await client.prompt(session, "hi")

        told = "\nBudget: 0.8 of 1 cost in this session are used.\n"
        assert client.transcript.text() == told
        reported = [each for each in client.transcript.updates() if "cost" in each]
        assert reported == [cost(0.7), cost(0.8), cost(0.9)]


async def test_another_currency_does_not_count(chain):
    agent = FakeAgent(turns=[[cost(5, "EUR")]])
    async with chain(Budget(Limits(cost=1)), agent) as client:
        await client.initialize()
        session = await client.new_session("/work")
        assert [await client.prompt(session, "hi") for _ in range(2)] == [ENDED, ENDED]


async def test_tokens_of_the_session_are_not_added_up(chain):
    agent = FakeAgent(turns=[[tokens(40)], [tokens(60)]])
    async with chain(Budget(Limits(tokens=100), tokens_are="session"), agent) as client:
        await client.initialize()
        session = await client.new_session("/work")
        assert [await client.prompt(session, "hi") for _ in range(3)] == [
            tokens(40),
            tokens(60),
            ENDED,
        ]


async def test_what_a_loaded_session_cost_earlier_does_not_count(chain):
    agent = FakeAgent(turns=[[cost(5)], [cost(5.5)]], handlers={"session/load": lambda p: {}})
    async with chain(Budget(Limits(cost=1)), agent) as client:
        await client.initialize()
        await client.request("session/load", {"sessionId": "s", "cwd": "/", "mcpServers": []})

        assert [await client.prompt("s", "hi") for _ in range(2)] == [ENDED, ENDED]


async def test_what_is_reported_between_turns_cancels_nothing(chain):
    agent = FakeAgent()
    async with chain(Budget(Limits(cost=1)), agent) as client:
        await client.initialize()
        session = await client.new_session("/work")
        assert await client.prompt(session, "hi") == ENDED
        agent.update(session, cost(2))
        await client.transcript.wait("session/update agent_message_chunk")
        assert await client.prompt(session, "hi") == REFUSED

    assert not agent.transcript.of("session/cancel")


async def test_in_version_2_a_turn_ends_with_the_idle_state(chain):
    async def turn(session):
        agent.update(session, {"sessionUpdate": "state_update", "state": "running"})
        idle = {"sessionUpdate": "state_update", "state": "idle", "stopReason": "end_turn"}
        agent.update(session, idle)

    agent = FakeAgent(turns=[[turn]])
    async with chain(Budget(Limits(turns=1), warn_at=1), agent) as client:
        await client.initialize(version=2)
        session = await client.new_session("/work")
        await client.prompt(session, "hi")
        await client.prompt(session, "hi")

        last = client.transcript.updates()[-1]
        assert (last["state"], last["stopReason"]) == ("idle", "refusal")
    assert len(agent.transcript.of("session/prompt", "request")) == 1


@pytest.mark.parametrize(
    ("sums", "part", "told"),
    [
        ({"tokens": 1_999_999}, 1, None),
        ({"tokens": 2_000_000}, 1, "2,000,000 of 2,000,000 tokens"),
        ({"tokens": 1_600_000}, 0.8, "1,600,000 of 2,000,000 tokens"),
        ({"cost": 0.5}, 1, "0.5 of 0.5 cost"),
        ({"turns": 1000}, 1, None),
        ({}, 1, None),
    ],
)
def test_limits_are_reached_and_told_in_words(sums, part, told):
    assert Limits(tokens=2_000_000, cost=0.5).reached(sums, part) == told


@pytest.mark.parametrize(
    ("options", "message"),
    [({}, "give `session` or `day`"), ({"session": Limits(turns=1), "warn_at": 2}, "warn_at")],
)
def test_options_are_checked(options, message):
    with pytest.raises(ValueError, match=message):
        Budget(**options)
