"""Subagents as claude-agent-acp 0.100 shows them, and a client that knows only its own sessions."""

from __future__ import annotations

import trio
from support.subagents import idle, running, subagent

from conductor.proxy import RequestError
from conductor.testing import FakeAgent
from proxies.permissions import Permissions
from proxies.subagents import Subagents
from proxies.v1_v2 import V1V2

CALL = {"toolCallId": "toolu_3", "title": "touch made", "kind": "execute", "status": "pending"}
REPLY = {"sessionUpdate": "session_message", "messageId": "m", "senderSessionId": "child"}


def message(text, id="1"):
    content = {"type": "text", "text": text}
    return {"sessionUpdate": "agent_message_chunk", "content": content, "messageId": id}


def of_child(agent, *updates, id="child"):
    def step(session):
        for each in updates:
            agent.update(id, each)

    return step


def delegating(answers, **options):
    """An agent that gives work to a subagent, which asks for permission."""
    agent = FakeAgent(**options)

    async def work(session):
        agent.update("child", {"sessionUpdate": "tool_call", **CALL})
        answers.append(await agent.ask("child", {"toolCallId": "toolu_3"}))
        agent.update("child", {"sessionUpdate": "plan", "entries": []})
        agent.update("child", message("made ", "2"))
        agent.update("child", message("it", "2"))

    agent.turns.append([running(title="Maker"), work, REPLY, idle(stopReason="end_turn"), "Done."])
    return agent


def refusing_unknown_sessions(client, session):
    """As editors do."""

    def permit(params):
        if params["sessionId"] != session:
            raise RequestError(-32602, "Session not found")
        return {"outcome": {"outcome": "selected", "optionId": "allow"}}

    client.handlers["session/request_permission"] = permit


async def test_a_subagent_is_a_tool_call_and_its_calls_and_questions_are_the_sessions(chain):
    answers = []
    async with chain(Subagents(), delegating(answers)) as client:
        await client.initialize()
        session = await client.new_session("/work")
        refusing_unknown_sessions(client, session)
        await client.prompt(session, "go")
        (asked,) = client.transcript.of("session/request_permission")

    assert answers == ["allow"]
    assert asked.params["toolCall"] == {"toolCallId": "child toolu_3"}
    first = {"toolCallId": "subagent child", "title": "Maker", "kind": "think"}
    said = {"type": "content", "content": {"type": "text", "text": "made it"}}
    assert client.transcript.updates() == [
        {"sessionUpdate": "tool_call", **first, "status": "in_progress"},
        {"sessionUpdate": "tool_call", **CALL, "toolCallId": "child toolu_3"},
        {
            "sessionUpdate": "tool_call_update",
            "toolCallId": "subagent child",
            "status": "completed",
            "content": [said],
        },
        {"sessionUpdate": "agent_message_chunk", "content": {"type": "text", "text": "Done."}},
    ]
    assert client.transcript.updates() == client.transcript.updates(session)


async def test_a_subagent_of_a_session_that_is_loaded_is_a_new_tool_call(chain):
    """The client shows nothing of the session before its history."""
    agent = FakeAgent(turns=[[running(title="Maker"), idle(stopReason="end_turn")]])

    async def load(params):
        agent.update(params["sessionId"], running(title="Maker"))
        agent.update(params["sessionId"], idle(stopReason="end_turn"))
        return {}

    agent.handlers["session/load"] = load
    async with chain(Subagents(), agent) as client:
        await client.initialize()
        session = await client.new_session("/work")
        await client.prompt(session, "go")
        live = client.transcript.updates()
        params = {"sessionId": session, "cwd": "/work", "mcpServers": []}
        await client.request("session/load", params)

    assert [each["sessionUpdate"] for each in live] == ["tool_call", "tool_call_update"]
    assert client.transcript.updates() == live + live


async def test_the_agent_learns_that_it_may_expose_subagents(chain):
    for capabilities, told in [
        ({"fs": {}}, {"fs": {}, "subagents": {}}),
        ({"subagents": {"a": 1}},) * 2,
    ]:
        agent = FakeAgent()
        async with chain(Subagents(), agent) as client:
            await client.initialize(capabilities=capabilities)
        (asked,) = agent.transcript.of("initialize", "request")
        assert asked.params["clientCapabilities"] == told


async def test_a_client_that_knows_subagents_gets_everything_as_it_is(chain):
    async with chain(Subagents(), delegating([])) as client:
        await client.initialize(capabilities={"subagents": {}})
        session = await client.new_session("/work")
        await client.prompt(session, "go")
        shown = [each["sessionUpdate"] for each in client.transcript.updates("child")]
        assert shown == ["tool_call", "plan", "agent_message_chunk", "agent_message_chunk"]
        assert REPLY in client.transcript.updates(session)


async def test_a_subagent_of_a_subagent_is_one_of_the_session_too(chain):
    agent = FakeAgent()
    call = {"sessionUpdate": "tool_call", **CALL}
    steps = [
        of_child(agent, running("below")),
        of_child(agent, call, id="below"),
        idle(stopReason="x"),
    ]
    agent.turns.append([running(), *steps])
    async with chain(Subagents(), agent) as client:
        await client.initialize()
        session = await client.new_session("/work")
        await client.prompt(session, "go")
        shown = [
            (each["toolCallId"], each.get("status")) for each in client.transcript.updates(session)
        ]

    assert shown == [
        ("subagent child", "in_progress"),
        ("subagent below", "in_progress"),
        ("below toolu_3", "pending"),
        ("subagent child", "failed"),
    ]


async def test_content_that_shows_a_subagents_session_is_left_out(chain):
    text = {"type": "content", "content": {"type": "text", "text": "x"}}
    call = {"sessionUpdate": "tool_call", **CALL}
    shown = {"type": "session", "sessionId": "child"}
    agent = FakeAgent(turns=[[subagent(), {**call, "content": [shown, text]}]])
    async with chain(Subagents(), agent) as client:
        await client.initialize()
        await client.prompt(await client.new_session("/work"), "go")
        assert client.transcript.updates()[-1] == {**call, "content": [text]}


async def test_the_cancellation_of_the_turn_is_that_of_its_subagents(chain):
    """An agent lets those in the background go on, for a client that could cancel them itself."""

    async def cancelled(session):
        await agent.transcript.wait("session/cancel", count=2)

    agent = FakeAgent()
    agent.turns.append([running(), running("idle"), idle("idle"), cancelled])
    async with chain(Subagents(), agent) as client:
        await client.initialize()
        session = await client.new_session("/work")
        async with trio.open_nursery() as nursery:
            nursery.start_soon(client.prompt, session, "go")
            await client.transcript.wait("session/update tool_call_update")
            client.cancel(session)

    cancels = [each.params["sessionId"] for each in agent.transcript.of("session/cancel")]
    assert cancels == [session, "child"]


async def test_files_and_terminals_of_a_subagent_are_those_of_the_session(chain):
    agent = FakeAgent()
    got = []

    async def read(session):
        got.append(
            await agent.endpoint.request("fs/read_text_file", {"sessionId": "child", "path": "/a"})
        )

    agent.turns.append([running(), read])
    async with chain(Subagents(), agent) as client:
        client.handlers["fs/read_text_file"] = lambda params: {"content": params["sessionId"]}
        await client.initialize()
        session = await client.new_session("/work")
        await client.prompt(session, "go")

    assert got == [{"content": session}]


async def test_before_an_agent_of_version_2_a_client_of_version_1_is_asked_in_its_session(chain):
    """As the conductor inserts both; rules of the user see the question, too."""
    answers = []
    agent = delegating(answers)
    agent.turns[0].insert(1, of_child(agent, {"sessionUpdate": "state_update", "state": "running"}))
    decides = Permissions([], dry_run=True)
    async with chain(decides, Subagents(), V1V2(agent_version=2), agent) as client:
        await client.initialize()
        session = await client.new_session("/work")
        refusing_unknown_sessions(client, session)
        await client.prompt(session, "go")
        kinds = [each["sessionUpdate"] for each in client.transcript.updates()]

    assert answers == ["allow"]
    assert "tool_call" in kinds
    assert not [
        each
        for each in client.transcript.of("session/update")
        if each.params["sessionId"] != session
    ]


async def test_a_session_of_the_user_is_no_subagent_of_another(chain):
    agent = FakeAgent()
    async with chain(Subagents(), agent) as client:
        await client.initialize()
        session, own = [await client.new_session("/work") for _ in range(2)]
        agent.update(session, running(own))
        agent.update(own, {"sessionUpdate": "tool_call", **CALL})
        await client.transcript.wait("session/update tool_call")

    assert client.transcript.updates(session) == []
    assert client.transcript.updates(own) == [{"sessionUpdate": "tool_call", **CALL}]
