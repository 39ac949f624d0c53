"""`@on_session_setup` and what a session knows: its origin, its parents, its client."""

from __future__ import annotations

from typing import Any

import pytest
from support.event_samples import opened
from support.subagents import subagent

from conductor.errors import LocalProtocolError, RequestError
from conductor.proxy import (
    Proxy,
    on,
    on_prompt,
    on_session,
    on_session_setup,
    on_text,
    on_turn_end,
    per_session,
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
    assert circle == child  # whose it is, is not changed
    assert client.transcript.text("grandchild") == f"['child', '{user}'] {user} {user}; "


@pytest.mark.parametrize(
    ("capabilities", "shown"),
    [
        ({}, "\n\n[Slow: be patient]\n\n"),
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
    proxy = Origins()
    async with chain(proxy, agent) as client:
        session = await opened(client)
        await client.request("session/fork", {"sessionId": session, "cwd": "/work"})
        await client.prompt("copy", "hi")
        load = {"sessionId": "copy", "cwd": "/other", "mcpServers": []}
        with pytest.raises(RequestError, match="not found"):
            await client.request("session/load", load)
        copy = proxy.session_by_id("copy")
        seen.append((copy.opened_by, copy.forked_from, copy.cwd))

    assert seen == [None, session, ("fork", session, "/work")]


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


def announced(id):
    return {"sessionUpdate": "subagent_update", "sessionId": id}


@pytest.mark.parametrize(
    ("before", "opening", "expected"),
    [
        ([], "new", None),
        ([("1", "3")], "new", None),
        ([("1", "3")], "fork", None),
        ([], "load", None),
        ([("1", "3")], "load", "1"),
        ([("1", "3")], "resume", "1"),
        ([("1", "3")], None, "1"),
        ([("invented", "3")], None, "2"),
        ([("1", "middle"), ("middle", "3")], None, "middle"),
    ],
)
async def test_the_user_of_a_session_is_not_the_agents_to_change(chain, before, opening, expected):
    """One that the client opens is its own; the session of a subagent stays below its first."""

    class P(Proxy):
        @on_text
        async def note(self, session, text):
            return f"{session.parent}; "

    def work(session):
        for above, below in before:
            agent.update(above, announced(below))

    def move(session):
        agent.update("2", announced("3"))
        content = {"type": "text", "text": "hi"}
        agent.update("3", {"sessionUpdate": "agent_message_chunk", "content": content})

    ids = iter("123")
    handlers = {
        **{
            name: lambda params: {"sessionId": next(ids)}
            for name in ("session/new", "session/fork")
        },
        **{name: lambda params: {} for name in ("session/load", "session/resume")},
    }
    agent = FakeAgent(turns=[[work], [move]], handlers=handlers)
    async with chain(P(), agent) as client:
        await client.initialize()
        for _ in range(2):
            await client.new_session("/work")
        await client.prompt("1", "hi")
        if opening is not None:
            params = {"sessionId": "3" if opening in ("load", "resume") else "2"}
            await client.request(f"session/{opening}", {**params, "cwd": "/own", "mcpServers": []})
        await client.prompt("2", "hi")

    assert client.transcript.text("3") == f"{expected}; "


async def test_sessions_that_an_agent_announces_in_a_circle_have_no_user(chain):
    class P(Proxy):
        @on_text
        async def note(self, session, text):
            return f"{[each.id for each in session.ancestors]} {session.is_placed}"

    def build(session):
        for above, below in ("ab", "bc", "ca"):
            agent.update(above, announced(below))
        agent.say("a", "hi")

    agent = FakeAgent(turns=[[build]])
    async with chain(P(), agent) as client:
        await client.prompt(await opened(client), "hi")

    assert client.transcript.text("a") == "['c', 'b'] False"


async def test_little_is_kept_of_sessions_with_long_ids_that_nothing_has_opened(chain):
    class P(Proxy):
        counts = per_session(int)

        @on_text
        async def note(self, session, text):
            self.counts[session.id] += 1
            return f"{sum(map(len, self.counts))} {self.counts['small']} {session.parent}"

    def flood(session):
        self_sized = [f"{n}" * 200_000 for n in range(10)]
        content = {"type": "text", "text": "hi"}
        for id in ("small", *self_sized, "child"):
            agent.update(id, {"sessionUpdate": "agent_message_chunk", "content": content})
            if id != "small":
                update = {"sessionUpdate": "subagent_update", "sessionId": "child"}
                agent.update(id, update)

    agent = FakeAgent(turns=[[flood]])
    async with chain(P(), agent) as client:
        await client.prompt(await opened(client), "hi")

    kept, small, parent = client.transcript.text("child").split(" ")
    assert int(kept) <= 1024 * 1024
    assert (small, parent) == ("0", "None")
