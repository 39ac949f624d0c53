from __future__ import annotations

import fcntl
import json

import pytest
import trio
from support.subagents import idle, running

from conductor import log
from conductor.errors import withhold_details
from conductor.proxy import RequestError
from conductor.proxy.slash_commands import HANDLED_KEY
from conductor.testing import FakeAgent
from proxies.budget import Budget, BudgetLimits

REFUSED = {"stopReason": "refusal", "_meta": {HANDLED_KEY: True}}
ENDED = {"stopReason": "end_turn"}


def cost(amount, currency="USD"):
    cost = {"amount": amount, "currency": currency}
    return {"sessionUpdate": "usage_update", "used": 1, "size": 2, "cost": cost}


def tokens(count):
    return {**ENDED, "usage": {"totalTokens": count, "inputTokens": count, "outputTokens": 0}}


async def test_a_day_counts_all_sessions_and_is_kept_in_its_file(chain, tmp_path):
    answers = []
    for turns in [[tokens(60), tokens(30)], [tokens(60), tokens(1)]]:
        proxy = Budget(day=BudgetLimits(tokens=100), file=tmp_path / "day.json")
        async with chain(proxy, FakeAgent(turns=[[turn] for turn in turns])) as client:
            await client.initialize()
            for _ in turns:
                answers.append(await client.prompt(await client.new_session("/work"), "hi"))
            told = client.transcript.text()

    assert answers == [tokens(60), tokens(30), tokens(60), REFUSED]
    assert "(150 tokens used today; the limit is 100)" in told


async def test_a_turn_that_runs_into_the_limit_is_cancelled_once(chain):
    async def cancelled(session):
        await agent.transcript.wait("session/cancel")

    agent = FakeAgent()
    agent.turns.append([cost(0.4), cost(1.2), cost(1.3), cancelled, {"stopReason": "cancelled"}])
    async with chain(Budget(BudgetLimits(cost=1)), agent) as client:
        await client.initialize()
        session = await client.new_session("/work")
        assert await client.prompt(session, "hi") == {"stopReason": "cancelled"}
        assert client.transcript.text() == (
            "\n\n[Cancelled: the budget is used up: 1.2 USD used in this session; "
            "the limit is 1]\n\n"
        )
        assert await client.prompt(session, "hi") == REFUSED

    assert len(agent.transcript.of("session/cancel")) == 1


async def test_the_user_is_told_once_when_little_is_left(chain):
    agent = FakeAgent(turns=[[cost(0.7)], [cost(0.8)], [cost(0.9)]])
    async with chain(Budget(BudgetLimits(cost=1)), agent) as client:
        await client.initialize()
        session = await client.new_session("/work")
        for _ in range(3):
            await client.prompt(session, "hi")

        told = "\n\n[Little of the budget is left: 0.8 of 1 USD used in this session]\n\n"
        assert client.transcript.text() == told
        reported = [each for each in client.transcript.updates() if "cost" in each]
        assert reported == [cost(0.7), cost(0.8), cost(0.9)]


@pytest.mark.parametrize(
    ("limits", "used", "texts"),
    [
        (BudgetLimits(tokens=50), tokens(39), []),
        (
            BudgetLimits(tokens=2_000_000),
            tokens(1_600_000),
            ["Little of the budget is left: 1,600,000 of 2,000,000 tokens"],
        ),
        (BudgetLimits(tokens=50), tokens(135), ["The budget is used up: 135 tokens"]),
        (
            BudgetLimits(turns=1, tokens=50),
            tokens(45),
            [
                "The budget is used up: 1 of 1 turns",
                "Little of the budget is left: 45 of 50 tokens",
            ],
        ),
    ],
)
async def test_what_is_left_is_told_after_a_turn_for_each_limit(chain, limits, used, texts):
    async with chain(Budget(limits), FakeAgent(turns=[[used]])) as client:
        await client.initialize()
        await client.prompt(await client.new_session("/work"), "hi")

        told = client.transcript.text().strip().splitlines()
    shown = [f"[{text} used in this session" for text in texts]
    limit = "; the limit is 50]" if used == tokens(135) else "]"
    assert [each for each in told if each] == [f"{text}{limit}" for text in shown]


async def test_another_currency_does_not_count(chain):
    agent = FakeAgent(turns=[[cost(5, "EUR")]])
    async with chain(Budget(BudgetLimits(cost=1)), agent) as client:
        await client.initialize()
        session = await client.new_session("/work")
        assert [await client.prompt(session, "hi") for _ in range(2)] == [ENDED, ENDED]


async def test_tokens_of_the_session_are_not_added_up(chain):
    agent = FakeAgent(turns=[[tokens(40)], [tokens(60)]])
    async with chain(Budget(BudgetLimits(tokens=100), tokens_are="session"), agent) as client:
        await client.initialize()
        session = await client.new_session("/work")
        assert [await client.prompt(session, "hi") for _ in range(3)] == [
            tokens(40),
            tokens(60),
            ENDED,
        ]


async def test_earlier_cost_of_a_loaded_session_does_not_count(chain):
    agent = FakeAgent(turns=[[cost(5)], [cost(5.5)]], handlers={"session/load": lambda p: {}})
    async with chain(Budget(BudgetLimits(cost=1)), agent) as client:
        await client.initialize()
        await client.request("session/load", {"sessionId": "s", "cwd": "/", "mcpServers": []})

        assert [await client.prompt("s", "hi") for _ in range(2)] == [ENDED, ENDED]


async def test_usage_reported_between_turns_cancels_nothing(chain):
    agent = FakeAgent()
    async with chain(Budget(BudgetLimits(cost=1)), agent) as client:
        await client.initialize()
        session = await client.new_session("/work")
        assert await client.prompt(session, "hi") == ENDED
        agent.update(session, cost(2))
        await client.transcript.wait("session/update agent_message_chunk")
        assert await client.prompt(session, "hi") == REFUSED

    assert not agent.transcript.of("session/cancel")


async def prompt_at_once(client, sessions):
    """Prompt in all of these at the same time; how the turns ended."""
    reasons = []

    async def prompt(session):
        reasons.append((await client.prompt(session, "hi"))["stopReason"])

    async with trio.open_nursery() as nursery:
        for session in sessions:
            nursery.start_soon(prompt, session)
    return sorted(reasons)


@pytest.mark.parametrize("where", ["session", "day", "file"])
async def test_prompts_at_once_do_not_exceed_a_limit_together(chain, tmp_path, where):
    async def wait(session):
        await agent.transcript.wait("session/prompt?", count=3)

    limits, file = BudgetLimits(turns=3), tmp_path / "day.json" if where == "file" else None
    agent = FakeAgent(turns=[[wait]] * 12)
    proxy = Budget(warn_at=1, file=file, **{"session" if where == "session" else "day": limits})
    async with chain(proxy, agent) as client:
        await client.initialize()
        sessions = [await client.new_session("/work") for _ in range(12)]
        if where == "session":
            sessions = [sessions[0]] * 12
        reasons = await prompt_at_once(client, sessions)

    assert reasons == ["end_turn"] * 3 + ["refusal"] * 9
    assert len(agent.transcript.of("session/prompt", "request")) == 3


async def test_in_version_2_turns_that_have_not_ended_are_counted(chain):
    agent = FakeAgent()
    async with chain(Budget(BudgetLimits(turns=2), warn_at=1), agent) as client:
        await client.initialize(version=2)
        session = await client.new_session("/work")
        for _ in range(4):
            await client.prompt(session, "hi")

    assert len(agent.transcript.of("session/prompt", "request")) == 2


async def test_a_turn_that_the_agent_refused_with_an_error_is_given_back(chain, tmp_path):
    error = RequestError(-32000, "no")
    agent = FakeAgent(turns=[[error], [], [error]])
    proxy = Budget(BudgetLimits(turns=1), BudgetLimits(turns=1), file=tmp_path / "day.json")
    async with chain(proxy, agent) as client:
        await client.initialize()
        session = await client.new_session("/work")
        with pytest.raises(RequestError):
            await client.prompt(session, "hi")
        assert [await client.prompt(session, "hi") for _ in range(2)] == [ENDED, REFUSED]


async def test_a_turn_that_another_proxy_refused_is_given_back(chain):
    agent = FakeAgent()
    async with chain(Budget(BudgetLimits(turns=2)), Budget(BudgetLimits(turns=1)), agent) as client:
        await client.initialize()
        one, two = [await client.new_session("/work") for _ in range(2)]
        for _ in range(5):
            await client.prompt(one, "hi")
        assert client.transcript.text(one).count("(1 of 1 turns used in this session)") == 4
        assert await client.prompt(two, "hi") == ENDED


@pytest.mark.parametrize("content", [None, "rubbish"])
async def test_nothing_runs_while_the_ledger_cannot_be_used(chain, tmp_path, content):
    file = tmp_path / "day.json"
    if content is None:
        file.mkdir()
    else:
        file.write_text(content)
    agent = FakeAgent()
    async with chain(Budget(day=BudgetLimits(cost=5), file=file), agent) as client:
        await client.initialize()
        session = await client.new_session("/work")
        assert [await client.prompt(session, "hi") for _ in range(2)] == [REFUSED] * 2
        assert f"Refused: the budget of the day is not known: {file} " in client.transcript.text()
        file.rmdir() if content is None else file.unlink()
        assert await client.prompt(session, "hi") == ENDED

    assert len(agent.transcript.of("session/prompt", "request")) == 1


async def test_a_remote_client_gets_the_reason_without_the_place_of_the_ledger(
    chain, tmp_path, capsys
):
    log.configure("info", lifecycle=False)
    with withhold_details():
        async with chain(Budget(day=BudgetLimits(cost=5), file=tmp_path), FakeAgent()) as client:
            await client.initialize()
            assert await client.prompt(await client.new_session("/work"), "hi") == REFUSED
            said = client.transcript.text()

    assert "Refused: the budget of the day is not known: its file cannot be used: " in said
    assert str(tmp_path) not in said
    assert f"file={tmp_path} " in capsys.readouterr().err


async def test_prompts_are_refused_while_the_ledger_is_locked_and_usage_is_written_later(
    chain, tmp_path
):
    """Also if the chain ends before the next prompt."""
    file = tmp_path / "day.json"
    other = file.open("a")

    async def lock(session):
        fcntl.flock(other, fcntl.LOCK_EX)

    agent = FakeAgent(turns=[[lock, tokens(90)]])
    async with chain(Budget(day=BudgetLimits(tokens=100), file=file), agent) as client:
        await client.initialize()
        session = await client.new_session("/work")
        assert await client.prompt(session, "hi") == tokens(90)
        assert await client.prompt(session, "hi") == REFUSED
        assert "cannot be used: another process has locked it" in client.transcript.text()
        other.close()
    assert json.loads(file.read_text())["sums"] == {"turns": 1, "tokens": 90}


async def test_the_turn_that_uses_the_last_of_the_turn_limit_is_not_cancelled(chain):
    agent = FakeAgent(turns=[[cost(0.1)], [cost(0.2)]])
    async with chain(Budget(BudgetLimits(turns=2, cost=1), warn_at=1), agent) as client:
        await client.initialize()
        session = await client.new_session("/work")
        assert [await client.prompt(session, "hi") for _ in range(3)] == [ENDED, ENDED, REFUSED]

    assert not agent.transcript.of("session/cancel")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "give `session` or `day`"),
        ({"session": BudgetLimits(turns=1), "warn_at": 2}, "warn_at"),
    ],
)
def test_options_are_checked(options, message):
    with pytest.raises(ValueError, match=message):
        Budget(**options)


async def test_a_closed_and_loaded_session_keeps_its_spent_budget(chain):
    handlers = {"session/close": lambda params: {}, "session/load": lambda params: {}}
    async with chain(Budget(BudgetLimits(turns=1)), FakeAgent(handlers=handlers)) as client:
        await client.initialize()
        session = await client.new_session("/work")
        assert await client.prompt(session, "hi") == ENDED
        await client.request("session/close", {"sessionId": session})
        reopened = {"sessionId": session, "cwd": "/work", "mcpServers": []}
        await client.request("session/load", reopened)
        assert await client.prompt(session, "hi") == REFUSED


async def test_the_end_of_one_turn_does_not_hide_another_that_runs_into_the_limit(chain):
    one_ended, begun = trio.Event(), trio.Event()

    async def spend(session):
        begun.set()
        await one_ended.wait()
        agent.update(session, cost(2))
        with trio.fail_after(10):
            await agent.transcript.wait("session/cancel")

    agent = FakeAgent(turns=[[spend], []])
    async with chain(Budget(BudgetLimits(cost=1)), agent) as client, trio.open_nursery() as nursery:
        await client.initialize()
        session = await client.new_session("/work")
        nursery.start_soon(client.prompt, session, "long")
        await begun.wait()
        await client.prompt(session, "short")
        one_ended.set()


async def test_what_a_subagent_spends_counts_for_the_session_and_no_turn(chain):
    agent = FakeAgent(turns=[[running(), idle(usage={"totalTokens": 60})], [tokens(50)]])
    limits = BudgetLimits(turns=3, tokens=100)
    async with chain(Budget(limits, warn_at=1), agent) as client:
        await client.initialize(capabilities={"subagents": {}})
        session = await client.new_session("/work")
        answers = [await client.prompt(session, "hi") for _ in range(3)]
        told = client.transcript.text(session)

    assert answers == [ENDED, tokens(50), REFUSED]
    assert "110 tokens used in this session; the limit is 100" in told


@pytest.mark.parametrize("version", [1, 2])
async def test_a_subagent_that_runs_into_the_limit_is_cancelled_with_its_parent(chain, version):

    async def work(session):
        for amount in (1.2, 1.3):
            agent.update("child", cost(amount))
        await agent.transcript.wait("session/cancel", count=2)

    def begin(session):
        agent.update("child", {"sessionUpdate": "state_update", "state": "running"})

    agent = FakeAgent()
    agent.turns.append([running(), begin, work])
    async with chain(Budget(BudgetLimits(cost=1)), agent) as client:
        await client.initialize(version=version, capabilities={"subagents": {}})
        session = await client.new_session("/work")
        await client.prompt_turn(session, "hi")
        titles = client.transcript.text(session)

    cancelled = {each.params["sessionId"] for each in agent.transcript.of("session/cancel")}
    assert cancelled == {"child", session}
    assert version == 2 or titles.count("Cancelled") == 1


@pytest.mark.parametrize("version", [1, 2])
async def test_what_an_unannounced_session_spends_counts_for_all_open_sessions(chain, version):
    agent = FakeAgent()

    def spend(session):
        agent.update("unknown", cost(0.4))
        agent.update("unknown", cost(1.2))

    agent.turns = [[], [spend]]
    async with chain(Budget(BudgetLimits(cost=1)), agent) as client:
        await client.initialize(version=version)
        one, two = [await client.new_session("/work") for _ in range(2)]
        for session in (one, two):
            await client.prompt_turn(session, "hi")
        for session in (one, two, "unknown", "another"):
            await client.prompt_turn(session, "hi")
            assert "(1.2 USD used in this session; the limit is 1)" in str(
                client.transcript.updates(session)
            )
        three = await client.new_session("/work")
        await client.prompt_turn(three, "hi")

    prompts = agent.transcript.of("session/prompt", "request")
    assert [each.params["sessionId"] for each in prompts] == [one, two, three]


async def test_prompts_to_sessions_that_were_not_opened_share_the_turns_of_the_open_ones(chain):
    agent = FakeAgent()
    async with chain(Budget(BudgetLimits(turns=3), warn_at=1), agent) as client:
        await client.initialize()
        session = await client.new_session("/work")
        asked = [session, "a", "b", session, "c"]
        answers = [await client.prompt(each, "hi") for each in asked]
        other = await client.new_session("/work")
        answers += [await client.prompt(each, "hi") for each in (other, "d", "e")]

    assert answers == [ENDED, ENDED, ENDED, REFUSED, REFUSED, ENDED, REFUSED, REFUSED]


async def test_late_costs_of_a_closed_session_are_its_own(chain):
    agent = FakeAgent(handlers={"session/close": lambda params: {}})
    agent.turns = [[], [], [lambda session: agent.update(one, cost(5))], []]
    async with chain(Budget(BudgetLimits(cost=1)), agent) as client:
        await client.initialize()
        one, two = [await client.new_session("/work") for _ in range(2)]
        for session in (one, two):
            await client.prompt(session, "hi")
        await client.request("session/close", {"sessionId": one})
        answers = [await client.prompt(two, "hi") for _ in range(2)]

    assert answers == [ENDED, ENDED]
