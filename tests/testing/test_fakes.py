"""The fakes follow their scripts and record received messages."""

from __future__ import annotations

import pytest
import trio
import trio.testing

from conductor.errors import RequestError
from conductor.proxy import Proxy, on, on_permission, slash
from conductor.testing import FakeAgent, Heard, Transcript, updates

END = {"stopReason": "end_turn"}


async def test_an_agent_follows_its_script(chain):
    plan = {"sessionUpdate": "plan", "entries": []}
    agent = FakeAgent(turns=[["Hel", plan, "lo"], [{"stopReason": "refusal"}], ["late"]])
    async with chain(agent) as client:
        await client.initialize()
        session = await client.new_session("/work")

        assert await client.prompt(session, "one") == END
        assert client.transcript.text() == "Hello"
        assert await client.prompt(session, "two") == {"stopReason": "refusal"}
        assert await client.prompt(session, "three") == END
        assert await client.prompt(session, "four") == END

    assert client.transcript.labels == [
        "answer to initialize",
        "answer to session/new",
        "session/update agent_message_chunk",
        "session/update plan",
        "session/update agent_message_chunk",
        "answer to session/prompt",
        "answer to session/prompt",
        "session/update agent_message_chunk",
        "answer to session/prompt",
        "answer to session/prompt",
    ]
    assert agent.transcript.labels[:3] == ["initialize?", "session/new?", "session/prompt?"]


async def test_a_step_may_be_a_function_or_an_error(chain):
    async def ask(session):
        params = {"options": [{"optionId": "yes"}, {"optionId": "no"}]}
        answer = await agent.endpoint.request("session/request_permission", params)
        agent.say(session, answer["outcome"]["optionId"])

    agent = FakeAgent(turns=[[ask], [RequestError(-32000, "log in first")]])
    async with chain(agent) as client:
        await client.initialize()
        session = await client.new_session("/work")
        await client.prompt(session, "one")
        with pytest.raises(RequestError, match="log in first"):
            await client.prompt(session, "two")

    assert client.transcript.text() == "yes"


async def test_handlers_replace_answers_and_add_others(chain):
    agent = FakeAgent({"_vendor/x": lambda params: {"got": params}})
    agent.handlers["session/new"] = lambda params: {"sessionId": "mine"}
    async with chain(agent) as client:
        await client.initialize()

        assert await client.new_session("/work") == "mine"
        assert await client.request("_vendor/x", {"a": 1}) == {"got": {"a": 1}}
        with pytest.raises(RequestError) as caught:
            await client.request("_vendor/y")
    assert caught.value.code == -32601


async def test_a_proxy_in_front_of_nothing_gets_the_test_agent(chain):
    class Loud(Proxy):
        @on("session/prompt")
        async def prompt(self, params: dict, forward):
            params["prompt"][0]["text"] = params["prompt"][0]["text"].upper()
            return await forward(params)

    async with chain(Loud()) as client:
        await client.initialize()
        await client.prompt(await client.new_session("/work"), "hello")

    assert client.transcript.text() == "You said: HELLO"


# -- transcripts -----------------------------------------------------------------------------------


def update(session, kind, **members):
    params = {"sessionId": session, "update": {"sessionUpdate": kind, **members}}
    return Heard("notification", "session/update", params=params)


def text(session, text):
    return update(session, "agent_message_chunk", content={"type": "text", "text": text})


def test_a_transcript_tells_the_sessions_apart():
    transcript = Transcript([text("a", "1"), text("b", "2"), text("a", "3")])

    assert transcript.text() == "123"
    assert transcript.text("a") == "13"
    assert len(transcript.updates("b")) == 1


def test_the_order_is_checked():
    transcript = Transcript(
        [text("a", "1"), update("a", "plan"), Heard("answer", "session/prompt")]
    )

    transcript.check_order("session/update plan", "answer to session/prompt")
    with pytest.raises(AssertionError, match="'session/update plan' does not come after"):
        transcript.check_order("answer to session/prompt", "session/update plan")


async def test_wait_for_finds_messages_received_before_the_call():
    transcript = Transcript([text("a", "1")])

    assert (await transcript.wait("session/update agent_message_chunk")).session == "a"
    with trio.move_on_after(0) as scope:
        await transcript.wait("session/update agent_message_chunk", count=2)
    assert scope.cancelled_caught


async def test_the_text_of_a_transcript_has_whole_messages_of_version_2(acp_chain):
    chunk = updates.chunk("On", messageId="1")
    whole = updates.message("1", "One, "), updates.message("2", "two.")
    agent = FakeAgent(turns=[[chunk, *whole]])
    async with acp_chain(agent) as client:
        await client.initialize(version=2)
        await client.prompt(await client.new_session(), "count")

    assert client.transcript.text() == "One, two."


class Asks(Proxy):
    """Prompts the agent itself, and says what it has answered."""

    @slash("ask", "Asks")
    async def ask(self, session, arguments):
        return f"heard {(await self.agent.prompt_turn(session.id, 'go')).text}"


@pytest.mark.parametrize("prompt", ["go", "/ask"])
async def test_a_state_that_was_on_its_way_does_not_end_a_turn(acp_chain, prompt):
    """As the first state of a new session may be."""

    def state(name):
        return {"sessionUpdate": "state_update", "state": name}

    begin = trio.Event()

    async def play(session):
        await begin.wait()
        agent.update(session, state("running"))
        agent.say(session, "Hello")
        agent.update(session, state("idle"))

    def answer(params):
        agent.update(params["sessionId"], state("idle"))
        agent.endpoint.start_soon(play, params["sessionId"])
        return {"messageId": "p"}

    agent = FakeAgent({"session/prompt": answer})
    async with acp_chain(Asks(), agent) as client:
        await client.initialize(version=2)
        session = await client.new_session()
        async with trio.open_nursery() as tasks:
            tasks.start_soon(client.prompt_turn, session, prompt)
            await trio.testing.wait_all_tasks_blocked()
            assert tasks.child_tasks
            begin.set()
        assert client.transcript.text().endswith("Hello")


@pytest.mark.parametrize("version", [1, 2])
async def test_prompt_turn_waits_for_the_end_of_its_own_turn(acp_chain, version):
    async with acp_chain() as client:
        await client.initialize(version=version)
        first, second = [await client.new_session("/project") for _ in range(2)]
        for session, text in [(first, "one"), (second, "two"), (first, "three")]:
            end = await client.prompt_turn(session, f"say {text}")
            assert end["stopReason"] == "end_turn"
            assert client.transcript.text(session).endswith(text)
        if version == 1:  # in version 2 the prompt has been accepted when the turn fails
            with pytest.raises(RequestError, match="no such"):
                await client.prompt_turn(first, "fail -32602 no such")


@pytest.mark.parametrize("version", [1, 2])
async def test_an_agent_asks_for_permission_in_both_versions(acp_chain, version):
    class Denies(Proxy):
        @on_permission
        async def deny(self, session, asked, forward):
            return asked.deny() if asked.tool_call.kind == "edit" else await forward()

    async def ask(session):
        for kind in ("edit", "read"):
            agent.say(session, await agent.ask(session, {"toolCallId": kind, "kind": kind}) + " ")

    agent = FakeAgent(turns=[[ask]])
    async with acp_chain(Denies(), agent, strict=True) as client:
        await client.initialize(version=version)
        await client.prompt_turn(await client.new_session("/project"), "hi")

    assert client.transcript.text() == "reject allow "


async def test_in_version_2_a_script_is_a_turn_of_version_2(acp_chain):
    plan = {"sessionUpdate": "plan_update", "planId": "p", "entries": []}
    agent = FakeAgent(
        turns=[["one", plan], [{"stopReason": "refusal"}], [RequestError(-32000, "no")]]
    )
    async with acp_chain(agent) as client:
        await client.initialize(version=2)
        session = await client.new_session("/project")
        end = {"sessionUpdate": "state_update", "state": "idle"}

        assert await client.prompt_turn(session, "hi") == {**end, **END}
        assert await client.prompt_turn(session, "hi") == {**end, "stopReason": "refusal"}
        with pytest.raises(RequestError, match="no"):
            await client.prompt_turn(session, "hi")
        assert await client.prompt_turn(session, "beyond the script") == {**end, **END}

    assert client.transcript.labels[2:7] == [
        "answer to session/prompt",
        "session/update state_update",
        "session/update agent_message_chunk",
        "session/update plan_update",
        "session/update state_update",
    ]
    assert client.transcript.text() == "one"


async def test_in_version_2_an_error_after_the_prompt_was_accepted_is_a_mistake(acp_chain):
    agent = FakeAgent(turns=[["one", RequestError(-32000, "too late")]])

    async def take_a_turn():
        async with acp_chain(agent) as client:
            await client.initialize(version=2)
            await client.prompt_turn(await client.new_session("/project"), "hi")

    with pytest.raises(ValueError, match="must be the first step"):
        await take_a_turn()


async def test_a_script_with_states_of_its_own_is_played_before_the_answer(acp_chain):
    agent = FakeAgent(turns=[[{"sessionUpdate": "state_update", "state": "running"}, "one"]])
    async with acp_chain(agent) as client:
        await client.initialize(version=2)
        assert await client.prompt_turn(await client.new_session("/project"), "hi") == END

    assert client.transcript.labels[2:] == [
        "session/update state_update",
        "session/update agent_message_chunk",
        "answer to session/prompt",
    ]
