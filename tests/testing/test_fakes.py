"""The fakes follow their scripts and record received messages."""

from __future__ import annotations

import pytest
import trio
import trio.testing

from conductor.errors import ConnectionClosed, RequestError
from conductor.proxy import Proxy, on, on_permission, slash
from conductor.testing import FakeAgent, FakeProxy, Heard, Transcript, open_chain, updates
from conductor.testing.agent import TestAgent

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


@pytest.mark.parametrize("speaks", ["proxy", "_proxy"])
async def test_a_proxy_passes_everything_on(chain, speaks):
    proxy, agent = FakeProxy(speaks=speaks), FakeAgent(turns=[["hi"]])
    async with chain(proxy, agent) as client:
        await client.initialize()
        session = await client.new_session("/work")
        await client.prompt(session, "one")
        client.notify("_vendor/n", {"big": 2**70})
        await agent.transcript.wait("_vendor/n")

    assert agent.transcript.labels == [
        "initialize?",
        "session/new?",
        "session/prompt?",
        "_vendor/n",
    ]
    assert agent.transcript.of("_vendor/n")[0].raw == b'{"big":%d}' % 2**70
    assert client.transcript.text() == "hi"


async def test_a_proxy_answers_for_others_and_speaks_for_itself(chain):
    proxy = FakeProxy({"_vendor/x": lambda params: "from the proxy"})
    agent = FakeAgent({"_vendor/y": lambda params: "from the agent"})
    async with chain(proxy, agent) as client:
        client.handlers["_vendor/z"] = lambda params: "from the client"
        await client.initialize()

        assert await client.request("_vendor/x") == "from the proxy"
        assert await proxy.toward_agent("_vendor/y") == "from the agent"
        assert await proxy.toward_client("_vendor/z") == "from the client"


async def test_a_cancellation_passes_a_proxy(chain):
    async def never(params):
        await trio.sleep_forever()

    agent = FakeAgent({"_vendor/x": never})
    async with chain(FakeProxy(), agent) as client:
        await client.initialize()
        with trio.CancelScope() as scope:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(client.request, "_vendor/x")
                await agent.transcript.wait("_vendor/x?")
                scope.cancel()
        answer = await client.transcript.wait("error to _vendor/x")

    assert answer.error["code"] == -32800


async def test_raw_lines_are_sent_as_they_are(chain):
    async with chain(FakeAgent()) as client:
        client.send_line(b"no json")
        heard = await client.transcript.wait(lambda heard: heard.kind == "malformed")

    assert heard.method == "an answer to no request (id None)"


async def test_an_agent_that_closes_its_connection_ends_the_chain(chain):
    async def hang_up(session):
        await trio.testing.wait_all_tasks_blocked()
        agent.hang_up()

    agent = FakeAgent(turns=[["bye", hang_up]])

    async with chain(agent) as client:
        await client.initialize()
        session = await client.new_session("/work")
        with pytest.raises(RequestError, match="hung up"):
            await client.prompt(session, "one")

    assert client.transcript.text() == "bye"
    assert client.attached.ending.reason == "failed"


async def test_requests_in_flight_at_eof_of_the_client_are_finished(chain):
    begun, go_on = trio.Event(), trio.Event()

    async def work(params):
        begun.set()
        await go_on.wait()
        return {}

    agent = FakeAgent({"_vendor/x": work})
    async with chain(agent) as client:
        await client.initialize()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(client.request, "_vendor/x")
            await begun.wait()
            client.close()
            go_on.set()
            await client.transcript.wait("answer to _vendor/x")

    assert client.attached.ending.reason == "client"


async def test_a_timeout_takes_no_time(chain, virtual_clock):
    async def never(params):
        await trio.sleep_forever()

    agent = FakeAgent({"initialize": never}, start_timeout=3600)
    before = trio.current_time()
    async with chain(agent) as client:
        with pytest.raises(RequestError, match="within 3600 s"):
            await client.initialize()

        assert trio.current_time() - before == pytest.approx(3600)


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


async def test_a_chain_file_is_a_part(chain, tmp_path):
    path = tmp_path / "chain.yaml"
    path.write_text("version: 1\nagent: {use: test-agent}\n")
    async with chain(path) as client:
        answer = await client.initialize()

    assert answer["agentInfo"]["name"] == "test-agent"


async def test_a_chain_of_proxies_has_the_client_for_its_successor(chain):
    async with chain(FakeProxy(), mode="proxy") as client:
        client.handlers["proxy/successor"] = lambda params: {"protocolVersion": 1}
        answer = await client.request("proxy/initialize", {"protocolVersion": 1})

    assert answer["protocolVersion"] == 1
    assert client.transcript.labels[0] == "proxy/successor?"


async def test_an_exception_in_the_block_comes_out_as_it_is():
    async def use():
        async with open_chain(TestAgent()) as client:
            await client.initialize()
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await use()


async def test_a_request_without_a_peer_raises_a_clear_error(chain):
    async with chain(FakeAgent()) as client:
        await client.initialize()
    with pytest.raises(ConnectionClosed):
        await client.request("_vendor/x")


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


async def test_an_update_with_a_stop_reason_is_an_update(acp_chain):
    idle = {"sessionUpdate": "state_update", "state": "idle", "stopReason": "end_turn"}
    agent = FakeAgent(turns=[[idle, {"stopReason": "refusal"}]])
    async with acp_chain(agent) as client:
        await client.initialize(version=2)
        assert await client.prompt(await client.new_session(), "hi") == {"stopReason": "refusal"}

    assert client.transcript.updates() == [idle]


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
