"""`@on_session_setup` and what a session knows: its origin, its parents, its client."""

from __future__ import annotations

from typing import Any

import pytest
from support.event_samples import opened
from support.subagents import subagent

from conductor.errors import LocalProtocolError
from conductor.proxy import (
    Proxy,
    on,
    on_prompt,
    on_session,
    on_session_setup,
    on_text,
    on_turn_end,
)
from conductor.testing import FakeAgent


@pytest.mark.parametrize("opened_by", ["new", "load", "resume", "fork"])
async def test_on_session_setup_changes_the_request_that_opens_a_session(acp_chain, opened_by):
    class P(Proxy):
        @on_session_setup
        async def add(self, setup, forward):
            seen.append((setup.opened_by, setup.session_id, setup.cwd, setup.mcp_servers))
            setup.mcp_servers = [*setup.mcp_servers, others]
            return {**await forward(), "seen": True}

        @on_session
        async def opened(self, session):
            names.append(session.mcp_server_names)

    seen, names, method = [], [], f"session/{opened_by}"
    notes = {"name": "notes", "command": "/bin/notes", "args": [], "env": []}
    others = {**notes, "name": "others"}
    agent = FakeAgent(handlers={method: lambda params: {"sessionId": "s1"}})
    params = {"cwd": "/work", "mcpServers": [notes]}
    params |= {} if opened_by == "new" else {"sessionId": "s0"}
    async with acp_chain(P(), agent) as client:
        await client.initialize()
        assert await client.request(method, params) == {"sessionId": "s1", "seen": True}

    assert seen == [(opened_by, params.get("sessionId"), "/work", [notes])]
    (sent,) = agent.transcript.of(method, "request")
    assert sent.params == {**params, "mcpServers": [notes, others]}
    assert names == [["notes", "others"]]


async def test_a_set_up_that_is_not_changed_keeps_its_bytes(acp_chain):
    class P(Proxy):
        @on_session_setup
        async def look(self, setup, forward):
            setup.mcp_servers.append({"name": "not set"})
            return await forward()

    agent = FakeAgent()
    async with acp_chain(P(), agent) as client:
        await client.initialize()
        await client.request("session/new", {"cwd": "/work"})

    (sent,) = agent.transcript.of("session/new", "request")
    assert sent.params == {"cwd": "/work"}


async def test_after_answer_runs_once_the_answer_is_sent(chain):
    class P(Proxy):
        @on("session/new")
        async def new(self, params, forward):
            result = await forward()
            self.after_answer(self.greet, result["sessionId"])
            return result

        async def greet(self, id):
            await self.client.say(id, "welcome")

    async with chain(P()) as client:
        session = await opened(client)
        await client.transcript.wait("session/update agent_message_chunk")
        assert client.transcript.text(session) == "welcome"


async def test_a_subagents_session_knows_its_parent(chain):
    class P(Proxy):
        @on_text
        async def note(self, session, text):
            return f"{session.parent}: {text}" if session.parent else None

    child = {"sessionUpdate": "subagent_update", "sessionId": "child", "title": "x"}

    async def of_child(session):
        chunk = {"sessionUpdate": "agent_message_chunk", "content": {"type": "text", "text": "hi"}}
        agent.update("child", chunk)

    agent = FakeAgent(turns=[[child, of_child]])
    async with chain(P(), agent) as client:
        session = await opened(client)
        await client.prompt(session, "hi")

    assert client.transcript.text("child") == f"{session}: hi"


async def test_a_subagents_session_knows_all_sessions_above_it_and_the_users(chain):
    class P(Proxy):
        @on_text
        async def note(self, session, text):
            above = [each.id for each in session.ancestors]
            return f"{above} {session.user_session.id} {self.session_by_id('child').parent}; "

    def subagent(id):
        return {"sessionUpdate": "subagent_update", "sessionId": id, "title": "x"}

    def say(id):
        content = {"type": "text", "text": "hi"}
        agent.update(id, {"sessionUpdate": "agent_message_chunk", "content": content})

    async def work(session):
        agent.update("child", subagent("grandchild"))
        for id in (session, "child", "grandchild"):
            say(id)
        agent.update("grandchild", subagent("child"))
        say("child")

    agent = FakeAgent(turns=[[subagent("child"), work]])
    async with chain(P(), agent) as client:
        user = await opened(client)
        await client.prompt(user, "hi")

    assert client.transcript.text(user) == f"[] {user} {user}; "
    child, circle = client.transcript.text("child").split("; ")[:2]
    assert child == f"['{user}'] {user} {user}"
    assert circle == "['grandchild'] grandchild grandchild"
    assert client.transcript.text("grandchild") == f"['child', '{user}'] {user} {user}; "


@pytest.mark.parametrize(
    ("capabilities", "shown"),
    [
        ({}, "\n[Slow: be patient]\n"),
        ({"session": {"notices": {}}}, ""),
    ],
)
async def test_a_notice_is_a_text_for_clients_without_notices(chain, capabilities, shown):
    class P(Proxy):
        @on_prompt
        async def prompt(self, session, prompt, forward):
            await session.notice("Slow", "be patient", severity="warning")
            return await forward()

    async with chain(P(), FakeAgent()) as client:
        await client.initialize(capabilities=capabilities)
        session = await client.new_session("/work")
        await client.prompt(session, "hi")

    assert client.transcript.text() == shown
    if not shown:
        notice = {"sessionUpdate": "notice", "severity": "warning"}
        (update,) = client.transcript.updates()
        assert update == {**notice, "title": "Slow", "description": "be patient"}


async def test_session_by_id_says_what_it_needs(chain):
    class P(Proxy):
        @on_session
        async def opened(self, session):
            assert self.session_by_id(session.id) is session

    with_events, without = P(), Proxy()
    async with chain(with_events, without) as client:
        await opened(client)
        with pytest.raises(LocalProtocolError, match="needs an event handler in the class"):
            without.session_by_id("s")


async def test_a_fork_knows_its_origin(chain):
    seen: list[Any] = []

    class Origins(Proxy):
        @on_session
        async def opened(self, session):
            seen.append(session.forked_from)

    agent = FakeAgent(handlers={"session/fork": lambda params: {"sessionId": "copy"}})
    async with chain(Origins(), agent) as client:
        session = await opened(client)
        await client.request("session/fork", {"sessionId": session, "cwd": "/work"})
        await client.prompt("copy", "hi")

    assert seen == [None, session]


@pytest.mark.parametrize("version", [1, 2])
async def test_the_end_of_a_subagents_work_is_that_of_a_turn_of_its_session(chain, version):
    """Version 1 tells it in the parent's session; version 2 in both, and it is one end."""
    ended = []

    class P(Proxy):
        @on_turn_end
        async def note(self, session, end):
            ended.append((session.id, end.stop_reason, end.usage))

    usage = {"totalTokens": 5, "inputTokens": 3, "outputTokens": 2}

    async def of_child(session):
        for state in ({"state": "running"}, {"state": "idle", "usage": usage}):
            agent.update(session, subagent(state=state))
            if version == 2:
                agent.update("child", {"sessionUpdate": "state_update", **state})

    agent = FakeAgent(turns=[[subagent(), of_child]])
    async with chain(P(), agent) as client:
        await client.initialize(version=version)
        session = await client.new_session("/work")
        await client.prompt_turn(session, "hi")

    assert ended == [("child", "end_turn", usage), (session, "end_turn", {})]
