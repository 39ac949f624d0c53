from __future__ import annotations

import sys
from contextlib import nullcontext, suppress
from datetime import timedelta

import pytest
import trio

from conductor.errors import withhold_details
from conductor.proxy import RequestError
from conductor.testing import FakeAgent
from proxies.budget import Budget, BudgetLimits
from proxies.failover import Failover, OtherAgent

LIMIT = RequestError(-32603, "Internal error", {"details": "429 rate_limit_error"})
PROGRAM = [sys.executable, "-m", "conductor.testing.agent"]


@pytest.fixture
def other(tmp_path):
    """An agent in this process."""
    path = tmp_path / "other.yaml"
    path.write_text("version: 1\nagent:\n  use: test-agent\n")
    return OtherAgent(chain=path)


async def opened(client, version=1):
    await client.initialize(version=version)
    return await client.new_session("/work")


def chunk(role, text):
    return {"sessionUpdate": f"{role}_message_chunk", "content": {"type": "text", "text": text}}


def prompts(agent):
    requests = agent.transcript.of("session/prompt", "request")
    return [[block["text"] for block in each.params["prompt"]] for each in requests]


async def test_a_limited_agent_is_replaced_by_a_program_for_the_turn(chain):
    other = OtherAgent(run=PROGRAM, name="other")
    agent = FakeAgent(turns=[["I am here."], [LIMIT]])
    async with chain(Failover([other]), agent) as client:
        session = await opened(client)
        await client.prompt(session, "hi")
        result = await client.prompt(session, "say hello")

    assert result == {"stopReason": "end_turn"}
    notice = "\n\n[other answers instead: the agent: rate limit (Internal error)]\n\n"
    assert client.transcript.text() == f"I am here.{notice}hello"


def reporting(**failure):
    """The result of a turn that failed, as claude-agent-acp answers a JetBrains client."""
    told = {"id": "t:error", "revision": 1, "severity": "error", "actions": [], **failure}
    return {"stopReason": "end_turn", "_meta": {"jetbrains": {"air": {"sessionFailure": told}}}}


@pytest.mark.parametrize(
    ("failure", "answer"),
    [
        ({"category": "limit", "title": "You've hit your session limit"}, "hello"),
        ({"category": "service", "title": "Claude is temporarily overloaded."}, "hello"),
        ({"category": "access", "title": "Sign in to continue using Claude."}, "hello"),
        ({"category": "limit", "title": "…", "actions": ["new_session"]}, ""),
        ({"category": "limit", "title": "You are near your limit", "severity": "warning"}, ""),
        ({"category": "request", "title": "Claude could not process this request."}, ""),
    ],
)
async def test_a_failure_that_is_reported_at_the_end_of_a_turn_counts_as_an_error(
    chain, failure, answer
):
    agent = FakeAgent(turns=[[reporting(**failure)]])
    async with chain(Failover([OtherAgent(run=PROGRAM, name="other")]), agent) as client:
        result = await client.prompt(await opened(client), "say hello")

    assert client.transcript.text().endswith(answer)
    assert bool(client.transcript.text()) == bool(answer)
    assert result == ({"stopReason": "end_turn"} if answer else reporting(**failure))


USED_UP = "You've hit your usage limit. Try again later."


@pytest.mark.parametrize(
    ("text", "end"),
    [
        (USED_UP, RequestError(-32603, "Internal error", {"message": USED_UP})),
        ("Warning: Metadata for `m` not found.", RequestError(-32000, "Authentication required")),
        ("Invalid API key · Fix external API key", RequestError(-32000, "Authentication required")),
        (USED_UP, reporting(category="limit", title=USED_UP)),
    ],
)
async def test_an_error_that_is_also_shown_as_the_answer_is_no_output(chain, text, end):
    """As codex-acp and claude-agent-acp do. The user is told who answers instead."""
    agent = FakeAgent(turns=[[f"{text}\n\n", end], ["Some output. ", end]])
    failover = Failover([OtherAgent(run=PROGRAM, name="other")], timedelta())
    async with chain(failover, agent) as client:
        session = await opened(client)
        await client.prompt(session, "say hello")
        shown = client.transcript.text()
        with suppress(RequestError):
            await client.prompt(session, "say hello")

    assert shown.startswith(f"{text}\n\n\n\n[other answers instead: the agent: ")
    assert shown.endswith("]\n\nhello")
    assert client.transcript.text() == f"{shown}Some output. "


async def test_an_agent_is_asked_again_when_its_limit_ends(chain, other, virtual_clock):
    error = RequestError(-32603, "Rate limit reached. Please try again in 90s.")
    agent = FakeAgent(turns=[[error], ["Back."]])
    async with chain(Failover([other]), agent) as client:
        session = await opened(client)
        await client.prompt(session, "say one")
        virtual_clock.jump(85)
        await client.prompt(session, "say two")
        virtual_clock.jump(10)
        await client.prompt(session, "there?")

    assert [each[-1] for each in prompts(agent)] == ["say one", "there?"]


async def test_the_other_agent_gets_the_conversation_and_the_first_what_it_missed(
    chain, other, virtual_clock
):
    echo_of_the_prompt = chunk("user", "hi")
    agent = FakeAgent(turns=[[echo_of_the_prompt, "I am here."], [LIMIT], ["Back."]])
    failover = Failover([other], timedelta(seconds=60))
    async with chain(failover, agent) as client:
        session = await opened(client)
        await client.prompt(session, "hi")
        await client.prompt(session, "echo")
        echoed = client.transcript.text()
        await client.prompt(session, "say one")  # the first agent is cooling down
        virtual_clock.jump(61)
        await client.prompt(session, "there?")
        await client.prompt(session, "again")

    assert r"<transcript>\nuser: hi\n\nagent: I am here.\n</transcript>" in echoed
    asked = prompts(agent)
    assert asked[:2] == [["hi"], ["echo"]]
    missed, there = asked[2]
    assert there == "there?"
    assert missed.index("user: echo") < missed.index("user: say one\n\nagent: one\n</transcript>")
    assert "user: hi\n\nagent: I am here.\n\nuser: echo" not in missed
    assert asked[3] == ["again"]
    notice = "[other answers instead: the agent is not asked again yet]"
    assert notice in client.transcript.text()


async def test_a_command_goes_to_either_agent_alone_and_the_transcript_with_the_next_prompt(
    chain, other, virtual_clock
):
    agent = FakeAgent(turns=[["Hi."], [LIMIT]])
    failover = Failover([other], cooldown=timedelta(seconds=10))
    async with chain(failover, agent) as client:
        session = await opened(client)
        await client.prompt(session, "hi")
        await client.prompt(session, "echo")
        before = client.transcript.text()
        await client.prompt(session, "/help")  # the first agent is cooling down
        answer = client.transcript.text().removeprefix(before)
        await trio.sleep(10)
        await client.prompt(session, "/compact")
        await client.prompt(session, "go on")

    assert ("<transcript>" in before, "<transcript>" in answer) == (True, False)
    *_, command, (missed, last) = prompts(agent)
    assert (command, last) == (["/compact"], "go on")
    assert "user: echo" in missed


async def test_the_transcript_for_another_agent_has_at_most_so_many_characters(chain, other):
    agent = FakeAgent(turns=[["A long answer."], [LIMIT]])
    async with chain(Failover([other], transcript=7), agent) as client:
        session = await opened(client)
        await client.prompt(session, "hi")
        await client.prompt(session, "echo")

        shown = r"<transcript>\n[older messages are left out]\n\nagent: answer.\n</transcript>"
        assert shown in client.transcript.text()


async def test_a_replayed_session_is_in_the_transcript(chain, other):
    agent = FakeAgent(turns=[[LIMIT]])

    def load(params):
        for update in (chunk("user", "Once."), chunk("agent", "Upon a time.")):
            agent.endpoint.notify("session/update", {**params, "update": update})
        return {}

    agent.handlers["session/load"] = load
    async with chain(Failover([other]), agent) as client:
        await client.initialize()
        await client.request("session/load", {"sessionId": "s", "cwd": "/", "mcpServers": []})
        await client.prompt("s", "echo")

    assert r"user: Once.\n\nagent: Upon a time.\n</transcript>" in client.transcript.text()


async def test_the_state_of_the_other_session_is_not_shown(chain, other):
    async with chain(Failover([other]), FakeAgent(turns=[[LIMIT]])) as client:
        session = await opened(client)
        await client.prompt(session, "mode code\nplan a\nsay x")
        kinds = {update["sessionUpdate"] for update in client.transcript.updates()}

    assert kinds == {"agent_message_chunk", "plan"}


async def test_an_error_after_output_and_other_errors_are_the_clients(chain, other):
    unknown = RequestError(-32603, "A turn is already running")
    agent = FakeAgent(turns=[["Half", LIMIT], [unknown]])
    async with chain(Failover([other]), agent) as client:
        session = await opened(client)
        with pytest.raises(RequestError, match="Internal error"):
            await client.prompt(session, "say x")
        with pytest.raises(RequestError, match="already running"):
            await client.prompt(session, "say x")

    assert client.transcript.text() == "Half"


async def test_agents_that_do_not_run_are_skipped_and_all_failures_are_named(chain, other):
    missing = OtherAgent(run=["no-such-agent"])
    async with chain(Failover([missing, other]), FakeAgent(turns=[[LIMIT]])) as client:
        session = await opened(client)
        await client.prompt(session, "say x")
    assert "no-such-agent: does not run" in client.transcript.text()
    assert client.transcript.text().endswith("x")

    async with chain(Failover([missing]), FakeAgent(turns=[[LIMIT]])) as client:
        session = await opened(client)
        with pytest.raises(RequestError, match=r"No agent can answer\. the agent: rate") as no:
            await client.prompt(session, "say x")
    assert "no-such-agent: does not run" in str(no.value)


@pytest.mark.parametrize("remote", [True, False])
async def test_only_a_local_client_gets_the_command_of_an_agent_that_does_not_run(
    chain, tmp_path, remote
):
    missing = OtherAgent(run=[str(tmp_path / "agent")], name="other")
    with withhold_details() if remote else nullcontext():
        async with chain(Failover([missing]), FakeAgent(turns=[[LIMIT]])) as client:
            with pytest.raises(RequestError, match="No agent can answer") as no:
                await client.prompt(await opened(client), "say x")

    assert "other: does not run" in str(no.value)
    assert (str(tmp_path) in str(no.value)) == (not remote)


async def test_all_agents_are_asked_while_all_are_cooling_down(chain):
    missing = OtherAgent(run=["no-such-agent"])
    agent = FakeAgent(turns=[[LIMIT], ["Here again."]])
    async with chain(Failover([missing]), agent) as client:
        session = await opened(client)
        with pytest.raises(RequestError, match="No agent can answer"):
            await client.prompt(session, "hi")
        await client.prompt(session, "hi")

    assert client.transcript.text() == "Here again."


async def test_version_2_shows_the_answer_at_its_end(chain, other):
    async with chain(Failover([other]), FakeAgent(turns=[[LIMIT]])) as client:
        session = await opened(client, version=2)
        await client.prompt(session, "say hello")
        kinds = [update["sessionUpdate"] for update in client.transcript.updates()]

    assert kinds == ["notice", "user_message", "state_update", "agent_message", "state_update"]
    assert client.transcript.updates()[0]["title"] == "other answers instead"
    (content,) = client.transcript.updates()[3]["content"]
    assert content["text"] == "hello"


@pytest.mark.parametrize("version", [1, 2])
async def test_turns_of_other_agents_count_for_budgets(chain, other, version):
    proxies = Budget(session=BudgetLimits(turns=2)), Failover([other])
    async with chain(*proxies, FakeAgent(turns=[[LIMIT]] * 3)) as client:
        session = await opened(client, version)
        for _ in range(3):
            await client.prompt(session, "say hello")
        said = str(client.transcript.updates()[-3:])
    assert "Refused: the budget is used up (2 of 2 turns used in this session)" in said


async def test_a_cancelled_turn_of_another_agent_does_not_cancel_the_next(chain, other):
    agents = [other, OtherAgent(run=["no-such-program"]), other]
    proxy = Failover(agents)
    async with chain(proxy, FakeAgent(turns=[[LIMIT]])) as client:
        session = await opened(client)
        await client.prompt(session, "say hello")
        client.notify("session/cancel", {"sessionId": session})
        proxy.agents.pop(0)
        result = await client.prompt(session, "say again")
    assert result["stopReason"] == "end_turn"


@pytest.mark.parametrize(
    "options", [{}, {"run": []}, {"run": ["a"], "chain": "b"}, {"chain": "b", "env": {"A": "1"}}]
)
def test_an_entry_names_a_program_or_a_chain_file(options, tmp_path):
    if "chain" in options:
        options = {**options, "chain": tmp_path / "b.yaml"}
    with pytest.raises(ValueError, match="`run`"):
        OtherAgent(**options)
