"""`@text_filter` in a chain: what is held back is sent before what ends the text."""

from __future__ import annotations

import pytest
from support.subagents import idle, running, subagent

from conductor.proxy import Proxy, RequestError, text_filter
from conductor.testing import FakeAgent


class Lines:
    def __init__(self, log):
        self.rest = ""
        self.log = log

    def feed(self, text):
        shown, end, self.rest = (self.rest + text).rpartition("\n")
        return (shown + end).upper()

    async def end(self):
        self.log.append(self.rest)
        return self.rest.upper()


class Upper(Proxy):
    def __init__(self):
        self.ended = []

    @text_filter("agent")
    def lines(self, session):
        return Lines(self.ended)


@pytest.mark.parametrize("outcome", [{"stopReason": "end_turn"}, RequestError(-32000, "no")])
async def test_the_rest_is_sent_before_the_response_to_the_prompt(acp_chain, outcome):
    agent, proxy = FakeAgent(turns=[["a", "\nb", outcome]]), Upper()
    async with acp_chain(proxy, agent) as client:
        await client.initialize()
        session = await client.new_session("/work")
        answer = client.prompt(session, "hi")
        if isinstance(outcome, RequestError):
            with pytest.raises(RequestError, match="no"):
                await answer
        else:
            assert await answer == outcome
        assert client.transcript.text() == "A\nB"
        assert client.transcript.labels[-1].startswith(("answer", "error"))

    assert proxy.ended == ["b"]


async def test_the_rest_is_sent_before_a_request_that_the_user_sees(acp_chain):
    async def ask(session):
        params = {
            "sessionId": session,
            "toolCall": {"toolCallId": "c1"},
            "options": [{"optionId": "y"}],
        }
        await agent.endpoint.request("session/request_permission", params)

    agent = FakeAgent(turns=[["b", ask, "c"]])
    async with acp_chain(Upper(), agent) as client:
        await client.initialize()
        await client.prompt(await client.new_session("/work"), "hi")

        client.transcript.check_order(
            "session/update agent_message_chunk", "session/request_permission?"
        )
        assert client.transcript.text() == "BC"


async def test_sessions_do_not_mix_and_other_texts_pass(acp_chain):
    async def speak(_):
        for session, text in ((one, "a"), (two, "x\n"), (one, "b\n")):
            agent.say(session, text)

    thought = {"sessionUpdate": "agent_thought_chunk", "content": {"type": "text", "text": "t"}}
    agent = FakeAgent(turns=[[speak, thought]])
    async with acp_chain(Upper(), agent) as client:
        await client.initialize()
        one, two = [await client.new_session("/work") for _ in range(2)]
        await client.prompt(one, "hi")

        assert client.transcript.text(one) == "AB\n"
        assert client.transcript.text(two) == "X\n"
        assert client.transcript.updates()[-1] == thought


async def test_sessions_with_open_texts_are_bounded(acp_chain, monkeypatch):
    monkeypatch.setattr("conductor.proxy.text_streams._MAX_SESSIONS", 2)

    async def speak(_):
        for number in range(3):
            agent.say(f"invented-{number}", f"text {number}")

    agent = FakeAgent(turns=[[speak]])
    async with acp_chain(Upper(), agent) as client:
        await client.initialize()
        await client.prompt(await client.new_session("/work"), "hi")

        assert client.transcript.text("invented-0") == "TEXT 0"


@pytest.mark.parametrize("tells_state", [True, False])
async def test_the_rest_of_a_subagents_text_is_sent_when_it_is_idle_or_its_parent_ends(
    acp_chain, tells_state
):
    agent = FakeAgent()
    told = [running(), idle()] if tells_state else [subagent(), subagent(title="x")]
    agent.turns.append([told[0], lambda _: agent.say("child", "a"), told[1]])
    async with acp_chain(Upper(), agent) as client:
        await client.initialize(capabilities={"subagents": {}})
        session = await client.new_session("/work")
        await client.prompt(session, "hi")
        assert client.transcript.text("child") == "A"


async def test_the_text_of_a_subagent_that_goes_on_is_held_back(acp_chain):
    agent = FakeAgent()
    agent.turns.append([running(), lambda _: agent.say("child", "a")])
    agent.turns.append([lambda _: agent.say("child", "b"), idle()])
    async with acp_chain(Upper(), agent) as client:
        await client.initialize(capabilities={"subagents": {}})
        session = await client.new_session("/work")
        await client.prompt(session, "hi")
        assert client.transcript.text("child") == ""
        await client.prompt(session, "hi")
        assert client.transcript.text("child") == "AB"
