from __future__ import annotations

from datetime import timedelta

import pytest
import trio

from conductor.proxy import RequestError
from conductor.proxy.slash_commands import HANDLED_KEY
from conductor.testing import FakeAgent
from proxies.rate_limit import RateLimit

ENDED = {"stopReason": "end_turn"}
REFUSED = {"stopReason": "refusal", "_meta": {HANDLED_KEY: True}}


async def prompt_all(client, sessions, *, prompts=1):
    """Prompt all at once; when which of them was answered, and with what."""
    answers, start = [], trio.current_time()

    async def prompt(session, number):
        answer = await client.prompt(session, f"{session} {number}")
        answers.append((round(trio.current_time() - start), session, answer["stopReason"]))

    async with trio.open_nursery() as nursery:
        for number in range(prompts):
            for session in sessions:
                nursery.start_soon(prompt, session, number)
                await trio.testing.wait_all_tasks_blocked()
    return answers


async def test_prompts_over_the_rate_wait_in_order(chain, virtual_clock):
    agent = FakeAgent()
    async with chain(RateLimit(prompts=2, per=timedelta(seconds=60)), agent) as client:
        await client.initialize()
        one, two = [await client.new_session("/work") for _ in range(2)]
        answers = await prompt_all(client, [one, two], prompts=3)

    assert [(when, what) for when, _, what in answers] == [
        (when, "end_turn") for when in (0, 0, 60, 60, 120, 120)
    ]
    heard = agent.transcript.of("session/prompt", "request")
    assert [each.params["prompt"][0]["text"] for each in heard] == [
        f"{session} {number}" for number in range(3) for session in (one, two)
    ]


async def test_time_that_passes_makes_room(chain, virtual_clock):
    async with chain(RateLimit(prompts=1, per=timedelta(seconds=10)), FakeAgent()) as client:
        await client.initialize()
        session = await client.new_session("/work")
        await client.prompt(session, "one")
        await trio.sleep(4)
        assert await prompt_all(client, [session]) == [(6, session, "end_turn")]
        await trio.sleep(10)
        assert await prompt_all(client, [session]) == [(0, session, "end_turn")]
        assert client.transcript.text() == "\n\n[Waiting for 6 s: there were too many prompts]\n\n"


async def test_prompts_over_the_rate_may_be_refused(chain, virtual_clock):
    agent = FakeAgent()
    async with chain(RateLimit(prompts=1, when_full="refuse"), agent) as client:
        await client.initialize()
        session = await client.new_session("/work")
        assert await client.prompt(session, "one") == ENDED
        assert await client.prompt(session, "two") == REFUSED
        await trio.sleep(60)
        assert await client.prompt(session, "three") == ENDED

    assert len(agent.transcript.of("session/prompt", "request")) == 2


async def test_a_prompt_that_would_wait_too_long_is_refused(chain, virtual_clock):
    proxy = RateLimit(prompts=1, longest=timedelta(seconds=90))
    async with chain(proxy, FakeAgent()) as client:
        await client.initialize()
        session = await client.new_session("/work")
        answers = await prompt_all(client, [session], prompts=3)

    assert sorted(answers) == [
        (0, session, "end_turn"),
        (0, session, "refusal"),
        (60, session, "end_turn"),
    ]


async def think(session):
    await trio.sleep(10)


@pytest.mark.parametrize(("at_once", "ends"), [(1, [10, 20, 30]), (2, [10, 10, 20])])
async def test_the_limit_of_concurrent_turns_holds(chain, virtual_clock, at_once, ends):
    agent = FakeAgent(turns=[[think] for _ in range(3)])
    async with chain(RateLimit(at_once=at_once), agent) as client:
        await client.initialize()
        sessions = [await client.new_session("/work") for _ in range(3)]
        answers = await prompt_all(client, sessions)

    assert [when for when, _, _ in answers] == ends


async def test_a_failed_turn_does_not_count(chain, virtual_clock):
    def fail(params):
        raise RequestError(-32603, "no")

    agent = FakeAgent(handlers={"session/prompt": fail})
    async with chain(RateLimit(at_once=1), agent) as client:
        await client.initialize()
        session = await client.new_session("/work")
        for _ in range(2):
            with pytest.raises(RequestError):
                await client.prompt(session, "hi")


async def test_in_version_2_a_turn_ends_with_the_idle_state(chain, virtual_clock):
    agent = FakeAgent({"session/prompt": lambda params: {"messageId": "m"}})
    async with chain(RateLimit(at_once=1), agent) as client, trio.open_nursery() as nursery:
        await client.initialize(version=2)
        one, two = [await client.new_session("/work") for _ in range(2)]
        await client.prompt(one, "hi")
        nursery.start_soon(client.prompt, two, "hi")
        await trio.testing.wait_all_tasks_blocked()
        assert len(agent.transcript.of("session/prompt", "request")) == 1
        idle = {"sessionUpdate": "state_update", "state": "idle", "stopReason": "end_turn"}
        agent.update(one, idle)
        await agent.transcript.wait("session/prompt?", count=2)
        assert client.transcript.updates() == [idle]


@pytest.mark.parametrize("early", [False, True])
async def test_in_version_2_a_turn_with_several_prompts_is_released_whole(
    chain, virtual_clock, early
):
    """Also if its end is reported before the last prompt is answered."""
    idle = {"sessionUpdate": "state_update", "state": "idle"}
    running = {"sessionUpdate": "state_update", "state": "running"}
    agent = FakeAgent()

    async def end(session):
        agent.update(session, idle)

    async with chain(RateLimit(at_once=2), agent) as client:
        await client.initialize(version=2)
        session = await client.new_session("/work")
        for _ in range(3):
            agent.turns = [[running], [end] if early else []]
            for _ in range(2):
                with trio.fail_after(10):
                    await client.prompt(session, "hi")
            if not early:
                agent.update(session, idle)
                await trio.testing.wait_all_tasks_blocked()


async def test_a_closed_session_releases_its_turn(chain, virtual_clock):
    agent = FakeAgent(handlers={"session/close": lambda params: {}})
    async with chain(RateLimit(at_once=1), agent) as client, trio.open_nursery() as nursery:
        await client.initialize(version=2)
        one, two = [await client.new_session("/work") for _ in range(2)]
        await client.prompt(one, "hi")
        nursery.start_soon(client.prompt, two, "hi")
        await trio.testing.wait_all_tasks_blocked()
        await client.request("session/close", {"sessionId": one})
        await agent.transcript.wait("session/prompt?", count=2)


def test_there_must_be_a_limit():
    with pytest.raises(ValueError, match="give `prompts` or `at_once`"):
        RateLimit()


async def test_the_rate_counts_from_when_a_prompt_starts_after_a_wait_for_a_turn(
    chain, virtual_clock
):
    async def think_long(session):
        await trio.sleep(100)

    agent = FakeAgent(turns=[[think_long], *([each] for each in "abcd")])
    limit = RateLimit(prompts=2, per=timedelta(seconds=60), at_once=1)
    async with chain(limit, agent) as client:
        await client.initialize()
        sessions = [await client.new_session("/work") for _ in range(5)]
        answers = await prompt_all(client, sessions)

    assert [when for when, _, _ in answers] == [100, 100, 100, 160, 160]


async def test_a_prompt_that_was_cancelled_while_it_waited_keeps_no_place(chain, virtual_clock):
    async with chain(RateLimit(prompts=1, per=timedelta(seconds=60)), FakeAgent()) as client:
        await client.initialize()
        session, other = [await client.new_session("/work") for _ in range(2)]
        await client.prompt(session, "first")
        async with trio.open_nursery() as nursery:
            nursery.start_soon(client.prompt, other, "cancelled")
            await trio.testing.wait_all_tasks_blocked()
            client.cancel(other)

        assert await prompt_all(client, [session]) == [(60, session, "end_turn")]
