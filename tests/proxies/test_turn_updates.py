from __future__ import annotations

import attrs
import pytest
import trio
import trio.testing

from conductor.errors import RequestError
from conductor.testing import FakeAgent
from conductor.testing.updates import chunk
from conductor.transport.io_loop import HIGH_WATERMARK, ReadGate
from proxies.elicitation import Elicitation
from proxies.turn_updates import TurnUpdates
from tests.support.peers.port import Host, hop

COMMANDS = {"sessionUpdate": "available_commands_update", "availableCommands": []}
USAGE = {"sessionUpdate": "usage_update", "used": 1, "size": 2}
NOTICE = {"sessionUpdate": "notice", "severity": "info", "title": "Hi"}


async def open_session(client):
    await client.initialize()
    return await client.new_session("/work")


async def passed(client, agent, session):
    """Wait until what the agent has sent before has passed the proxy, or is kept."""
    await trio.testing.wait_all_tasks_blocked()  # tasks that were just started have sent it
    agent.update(session, USAGE)
    await client.transcript.wait("session/update usage_update")


async def test_they_are_kept_until_the_next_turn_in_their_order(chain):
    call = {"sessionUpdate": "tool_call", "toolCallId": "1", "title": "x", "_meta": {"a": 1}}
    agent = FakeAgent(turns=[["first"], ["second"]])
    async with chain(TurnUpdates(), agent) as client:
        session = await open_session(client)
        await client.prompt(session, "one")
        for update in (chunk("late"), COMMANDS, call, NOTICE):
            agent.update(session, update)
        await passed(client, agent, session)
        between = client.transcript.updates()
        await client.prompt(session, "two")

    assert between == [chunk("first"), COMMANDS, NOTICE, USAGE]
    assert client.transcript.updates()[4:] == [chunk("late"), call, chunk("second")]


async def test_an_update_with_half_an_emoji_in_a_key_is_kept_as_any_other():
    params = {"sessionId": "s", "update": {**chunk("late"), "\ud83d": 1}}
    async with hop(TurnUpdates()) as on_hop:
        on_hop.agent.send("session/update", params)
        await on_hop.settle()
        assert on_hop.client.heard == []
        on_hop.client.ask("session/prompt", {"sessionId": "s", "prompt": []})
        await on_hop.settle()

        assert on_hop.client.heard == [("notification", "session/update", params)]


async def test_updates_in_a_turn_pass_at_once(chain):
    seen = []
    agent = FakeAgent()

    async def turn(session):
        agent.update(session, chunk("now"))
        await agent.endpoint.request("example/seen", {"sessionId": session})

    agent.turns.append([turn])
    async with chain(TurnUpdates(), agent) as client:
        client.handlers["example/seen"] = lambda params: seen.extend(client.transcript.updates())
        await client.prompt(await open_session(client), "go")
    assert seen == [chunk("now")]


async def test_a_turn_that_fails_is_over(chain):
    agent = FakeAgent(turns=[[RequestError(-32603, "no")], ["yes"]])
    async with chain(TurnUpdates(), agent) as client:
        session = await open_session(client)
        with pytest.raises(RequestError):
            await client.prompt(session, "one")
        agent.update(session, chunk("late"))
        await passed(client, agent, session)
        assert chunk("late") not in client.transcript.updates()
        await client.prompt(session, "two")
    assert client.transcript.text() == "lateyes"


async def test_a_subagent_belongs_to_the_turn_of_its_user(chain):
    child = {"sessionUpdate": "subagent_update", "sessionId": "child"}
    agent = FakeAgent()

    async def start(session):
        agent.update(session, child)
        agent.update("child", chunk("in the turn"))

    agent.turns.append([start])
    async with chain(TurnUpdates(), agent) as client:
        session = await open_session(client)
        await client.prompt(session, "one")
        agent.update("child", chunk("late"))
        await passed(client, agent, session)
        assert client.transcript.updates()[:2] == [child, chunk("in the turn")]
        assert chunk("late") not in client.transcript.updates()
        await client.prompt(session, "two")
    assert client.transcript.of("session/update")[-1].params["sessionId"] == "child"


async def test_what_is_kept_is_bounded(chain):
    agent = FakeAgent()
    async with chain(TurnUpdates(), agent) as client:
        session = await open_session(client)
        for number in range(5):
            agent.update(session, chunk(f"{number}" * 400_000))
        await passed(client, agent, session)
        shown = [each["content"]["text"][0] for each in client.transcript.updates()[:-1]]
    assert shown == ["0", "1", "2"]


@attrs.define(eq=False)
class SlowReader(Host):
    backlog: int = HIGH_WATERMARK + 1

    def read_gate(self, component):
        return ReadGate(self.flusher, lambda: self.backlog)


async def test_a_question_outlasts_a_prompt_that_is_cancelled_while_updates_are_sent():
    host, prompt = SlowReader(), {"sessionId": "s", "prompt": []}
    async with hop(TurnUpdates(questions=True), host=host) as on_hop:
        on_hop.agent.send("session/update", {"sessionId": "s", "update": chunk("1" * 100_000)})
        on_hop.agent.send("session/update", {"sessionId": "s", "update": chunk("2")})
        on_hop.agent.ask("session/request_permission", {"sessionId": "s", "options": []})
        cancelled = on_hop.client.ask("session/prompt", prompt)
        await on_hop.settle()
        cancelled.cancel()
        await on_hop.settle()
        host.backlog = 0
        host.flusher.made_room()
        on_hop.client.ask("session/prompt", prompt)
        await on_hop.settle()

        assert [call.method for call in on_hop.client.asked] == ["session/request_permission"]


async def test_updates_do_not_pass_those_that_are_being_sent():
    def update(text):
        return {"sessionId": "s", "update": chunk(text)}

    first, second, third = updates = [update("1" * 100_000), update("2"), update("3")]
    host = SlowReader()
    async with hop(TurnUpdates(), host=host) as on_hop:
        on_hop.agent.send("session/update", first)
        on_hop.agent.send("session/update", second)
        await on_hop.settle()
        assert on_hop.client.heard == []
        on_hop.client.ask("session/prompt", {"sessionId": "s", "prompt": []})
        await on_hop.settle()
        on_hop.agent.send("session/update", third)
        await on_hop.settle()
        assert on_hop.client.heard == [("notification", "session/update", first)]

        host.backlog = 0
        host.flusher.made_room()
        await on_hop.settle()
        assert [params for _, _, params in on_hop.client.heard] == updates


async def test_what_is_kept_of_a_session_that_ends_is_dropped(chain):
    agent = FakeAgent(turns=[["again"]])
    agent.handlers["session/close"] = lambda params: {}
    async with chain(TurnUpdates(), agent) as client:
        session = await open_session(client)
        agent.update(session, chunk("late"))
        await passed(client, agent, session)
        await client.request("session/close", {"sessionId": session})
        await client.prompt(session, "go")
    assert client.transcript.text() == "again"


QUESTION = {
    "toolCall": {"toolCallId": "1", "title": "Delete it?"},
    "options": [{"optionId": "yes", "name": "Yes", "kind": "allow_once"}],
}


async def ask(agent, session, answers):
    params = {"sessionId": session, **QUESTION}
    answered = await agent.endpoint.request("session/request_permission", params)
    answers.append(answered["outcome"]["outcome"])


async def test_a_question_between_turns_waits_for_the_next_turn(chain):
    agent, answers = FakeAgent(turns=[["first"], ["second"]]), []
    async with chain(TurnUpdates(questions=True), agent) as client, trio.open_nursery() as nursery:
        session = await open_session(client)
        await client.prompt(session, "one")
        agent.update(session, chunk("late"))
        nursery.start_soon(ask, agent, session, answers)
        await passed(client, agent, session)
        between = client.transcript.labels
        await client.prompt(session, "two")
        await client.transcript.wait("session/request_permission?")

    assert "session/request_permission?" not in between
    assert client.transcript.text() == "firstlatesecond"
    assert answers == ["selected"]


async def test_a_question_in_a_turn_passes_at_once(chain):
    agent, answers = FakeAgent(), []
    agent.turns.append([lambda session: ask(agent, session, answers)])
    async with chain(TurnUpdates(questions=True), agent) as client:
        await client.prompt(await open_session(client), "go")
    assert answers == ["selected"]


async def test_a_question_between_turns_passes_at_once_to_a_client_that_shows_it(chain):
    agent, answers = FakeAgent(), []
    async with chain(TurnUpdates(), agent) as client:
        await ask(agent, await open_session(client), answers)
    assert answers == ["selected"]


async def test_a_question_that_waits_is_cancelled_with_its_session(chain):
    agent, answers = FakeAgent(), []
    agent.handlers["session/close"] = lambda params: {}
    async with chain(TurnUpdates(questions=True), agent) as client, trio.open_nursery() as nursery:
        session = await open_session(client)
        nursery.start_soon(ask, agent, session, answers)
        await passed(client, agent, session)
        await client.request("session/close", {"sessionId": session})
    assert answers == ["cancelled"]


async def test_a_question_that_waits_is_cancelled_when_the_user_cancels():
    """The user has not seen it; the next one waits again."""
    asked = {"sessionId": "s", "options": []}
    async with hop(TurnUpdates(questions=True)) as on_hop:
        on_hop.agent.ask("session/request_permission", asked)
        on_hop.agent.ask("elicitation/create", asked)
        await on_hop.settle()
        on_hop.client.send("session/cancel", {"sessionId": "s"})
        await on_hop.settle()
        on_hop.agent.ask("session/request_permission", asked)
        await on_hop.settle()

        assert on_hop.client.asked == []
        answers = [each[1:3] for each in on_hop.agent.heard if each[0] == "answer"]
        assert sorted(answers, key=lambda each: each[0]) == [  # two tasks: in either order
            ("elicitation/create", {"action": "cancel"}),
            ("session/request_permission", {"outcome": {"outcome": "cancelled"}}),
        ]


async def ask_with_form(agent, session, answers):
    choice = {"type": "object", "properties": {"x": {"type": "boolean"}}, "required": ["x"]}
    params = {**session, "mode": "form", "message": "Well?", "requestedSchema": choice}
    answers.append(await agent.endpoint.request("elicitation/create", params))


async def test_an_elicitation_between_turns_waits_too(chain):
    """Behind `elicitation`, which asks with a permission request, or in the conversation."""
    agent, answers, proxies = (
        FakeAgent(turns=[["one"]]),
        [],
        (Elicitation(), TurnUpdates(questions=True)),
    )
    async with chain(*proxies, agent) as client, trio.open_nursery() as nursery:
        session = await open_session(client)
        nursery.start_soon(ask_with_form, agent, {"sessionId": session}, answers)
        await passed(client, agent, session)
        between = client.transcript.labels
        await client.prompt(session, "one")
        await client.transcript.wait("session/request_permission?")

    assert "session/request_permission?" not in between
    assert answers == [{"action": "accept", "content": {"x": True}}]


async def test_an_elicitation_of_a_request_does_not_wait(chain):
    agent, answers = FakeAgent(), []
    async with chain(TurnUpdates(questions=True), agent) as client:
        client.handlers["elicitation/create"] = lambda params: {"action": "decline"}
        await open_session(client)
        await ask_with_form(agent, {"requestId": 1}, answers)
    assert answers == [{"action": "decline"}]


async def test_the_history_of_a_session_passes_at_once_and_replaces_what_is_kept_of_it(chain):
    agent = FakeAgent(turns=[["new"]])

    def load(params):
        agent.update(params["sessionId"], chunk("history "))
        return {}

    agent.handlers["session/load"] = load
    async with chain(TurnUpdates(), agent) as client:
        session = await open_session(client)
        agent.update(session, chunk("late "))
        await passed(client, agent, session)
        params = {"sessionId": session, "cwd": "/work", "mcpServers": []}
        await client.request("session/load", params)
        assert client.transcript.text() == "history "
        await client.prompt(session, "go")
    assert client.transcript.text() == "history new"
