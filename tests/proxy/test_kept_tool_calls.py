"""What a plugin remembers of unfinished tool calls is bounded."""

from __future__ import annotations

import pytest

from conductor.acp import sessions
from conductor.proxy import Proxy, on_permission
from conductor.proxy.sessions import Session
from conductor.testing import FakeAgent

OPTIONS = [{"optionId": "no", "name": "No", "kind": "reject_once"}]


class Asked(Proxy):
    def __init__(self):
        self.calls = []

    @on_permission
    async def asked(self, session, asked, forward):
        self.calls.append(asked.tool_call)
        return asked.deny()


@pytest.fixture
def small_limit(monkeypatch):
    monkeypatch.setattr(sessions, "_MAX_BYTES", 40_000)


def ask(agent, session, id):
    params = {"sessionId": session, "toolCall": {"toolCallId": id}, "options": OPTIONS}
    return agent.endpoint.request("session/request_permission", params)


async def test_outputs_of_calls_that_never_end_are_forgotten_but_not_what_they_do(
    chain, small_limit
):
    proxy, agent = Asked(), FakeAgent()
    diff = {"type": "diff", "path": "/work/a", "oldText": "", "newText": "x"}
    output = {"type": "content", "content": {"type": "text", "text": "y" * 2000}}

    async def work(session):
        for n in range(100):
            call = {"toolCallId": str(n), "kind": "edit", "rawInput": {"path": "/work/a"}}
            call |= {"content": [diff, output], "rawOutput": "z" * 2000}
            agent.update(f"{session}-{n % 3}", {"sessionUpdate": "tool_call", **call})
        for n in range(100):
            await ask(agent, f"{session}-{n % 3}", str(n))

    agent.turns = [[work]]
    async with chain(proxy, agent) as client:
        await client.initialize()
        await client.prompt(await client.new_session("/work"), "go")

    without = [call for call in proxy.calls if call.raw_output is None]
    assert len(without) > 80
    for call in without:
        assert (call.kind, call.raw_input, call.content) == ("edit", {"path": "/work/a"}, [diff])


async def test_calls_that_are_large_without_an_output_are_forgotten(chain, small_limit):
    proxy, agent = Asked(), FakeAgent()

    async def work(session):
        for n in range(50):
            call = {"toolCallId": str(n), "kind": "edit", "rawInput": "x" * 2000}
            agent.update(session, {"sessionUpdate": "tool_call", **call})
        for n in range(50):
            await ask(agent, session, str(n))

    agent.turns = [[work]]
    async with chain(proxy, agent) as client:
        await client.initialize()
        await client.prompt(await client.new_session("/work"), "go")

    assert sum(call.raw_input is not None for call in proxy.calls) <= 20
    assert proxy.calls[-1].raw_input is not None


def test_chunks_are_appended_without_a_change_of_the_message_before_them():
    session, content = Session("s"), [{"type": "content"}]
    update = {"sessionUpdate": "tool_call_update", "toolCallId": "1", "content": content}
    chunk = {"sessionUpdate": "tool_call_content_chunk", "toolCallId": "1", "content": {"c": 1}}

    session.call_table.update(update)
    asked = session.call_table.update_asked({"toolCallId": "1"})
    for _ in range(2):
        session.call_table.update(chunk)

    assert content == [{"type": "content"}]
    assert (
        session.tool_calls["1"].content
        == asked.content
        == [
            {"type": "content"},
            {"c": 1},
            {"c": 1},
        ]
    )
