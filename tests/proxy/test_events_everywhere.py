"""Events are the same in versions 1 and 2, for the session of a user and for that of a subagent."""

from __future__ import annotations

import pytest

from conductor.proxy import (
    Proxy,
    on_permission,
    on_question,
    on_text,
    on_tool_end,
    on_tool_start,
    on_turn_end,
    on_update,
)
from conductor.testing import FakeAgent


class Recorder(Proxy):
    def __init__(self):
        self.seen = []

    def note(self, session, *what):
        self.seen.append((session.id, *what))

    @on_update("plan", "plan_update")
    async def plan(self, session, update, forward):
        self.note(session, "update", session.user_session.cwd)
        await forward()

    @on_text("agent", "thought", "user")
    async def text(self, session, text):
        self.note(session, "text", text)

    @on_tool_start
    async def tool_started(self, session, call):
        self.note(session, "tool start", call.title, call.kind)

    @on_tool_end
    async def tool_ended(self, session, call):
        self.note(session, "tool end", call.title, call.status)

    @on_permission
    async def permission(self, session, asked, forward):
        self.note(session, "permission", asked.tool_call.kind, asked.tool_call.title)
        return await forward()

    @on_question
    async def question(self, session, question, forward):
        self.note(session, "question", question.message)
        return question.decline()

    @on_turn_end
    async def turn_ended(self, session, end):
        self.note(session, "turn end", end.stop_reason)


TEXTS = [("agent_message", "hel"), ("agent_thought", "hm"), ("user_message", "you")]
PLANS = {
    1: {"sessionUpdate": "plan", "entries": []},
    2: {
        "sessionUpdate": "plan_update",
        "plan": {"type": "items", "planId": "1", "entries": []},
    },
}
CALL = {"toolCallId": "1", "title": "Edit a", "kind": "edit"}
SCHEMA = {"type": "object", "properties": {"name": {"type": "string"}}}
EVENTS = [
    ("text", "hel"),
    ("text", "hm"),
    ("text", "you"),
    ("update", "/project"),
    ("tool start", "Edit a", "edit"),
    ("permission", "edit", "Edit a"),
    ("tool end", "Edit a", "completed"),
    ("question", "Your name?"),
]


def chunk(kind, text):
    content = {"type": "text", "text": text}
    return {"sessionUpdate": f"{kind}_chunk", "content": content, "messageId": kind}


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("of", ["user", "subagent"])
async def test_every_event(acp_chain, version, of):
    proxy, agent = Recorder(), FakeAgent()

    async def work(session):
        id = session if of == "user" else "child"
        if of == "subagent":
            agent.update(session, {"sessionUpdate": "subagent_update", "sessionId": id})
        for kind, text in TEXTS:
            agent.update(id, chunk(kind, text))
        agent.update(id, PLANS[version])
        begin = "tool_call" if version == 1 else "tool_call_update"
        agent.update(id, {"sessionUpdate": begin, "status": "in_progress", **CALL})
        assert await agent.ask(id, {"toolCallId": "1"}) == "allow"
        done = {"sessionUpdate": "tool_call_update", "toolCallId": "1", "status": "completed"}
        agent.update(id, done)
        form = {"sessionId": id, "mode": "form", "message": "Your name?", "requestedSchema": SCHEMA}
        assert await agent.endpoint.request("elicitation/create", form) == {"action": "decline"}

    agent.turns = [[work]]
    async with acp_chain(proxy, agent, strict=True) as client:
        await client.initialize(version=version, capabilities={"elicitation": {"form": {}}})
        session = await client.new_session("/project")
        await client.prompt_turn(session, "hi")

    id = session if of == "user" else "child"
    assert proxy.seen == [*((id, *each) for each in EVENTS), (session, "turn end", "end_turn")]
