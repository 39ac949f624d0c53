from __future__ import annotations

import pytest

from conductor.testing import FakeAgent
from proxies.plan_approval import PlanApproval

MESSAGE = "session/update agent_message_chunk"
PLAN = "1. Read.\n2. Write."
CONTENT = [{"type": "content", "content": {"type": "text", "text": PLAN}}]
OPTIONS = [
    {"optionId": "acceptEdits", "name": "Yes, and auto-accept edits", "kind": "allow_always"},
    {"optionId": "default", "name": "Yes, and manually approve edits", "kind": "allow_once"},
    {"optionId": "plan", "name": "No, keep planning", "kind": "reject_once"},
]


def approving(call, times=1):
    """An agent that asks for the approval of a plan, as claude-agent-acp does."""
    agent = FakeAgent()

    async def ask(session):
        agent.update(session, {"sessionUpdate": "tool_call", "status": "pending", **call})
        for _ in range(times):
            params = {"sessionId": session, "toolCall": call, "options": OPTIONS}
            await agent.endpoint.request("session/request_permission", params)

    agent.turns.append([ask])
    return agent


def call(**members):
    return {"toolCallId": "1", "title": "Ready to code?", "kind": "switch_mode", **members}


async def run(chain, *components):
    async with chain(*components) as client:
        await client.initialize()
        await client.prompt(await client.new_session("/work"), "go")
    return client.transcript


@pytest.mark.parametrize(
    "members",
    [
        {"rawInput": {"plan": PLAN}, "content": []},
        {"content": CONTENT},
        {"rawInput": {"plan": PLAN}, "content": CONTENT},
    ],
)
async def test_the_plan_is_shown_once_before_the_request_which_stays_as_it_is(chain, members):
    transcript = await run(chain, PlanApproval(), approving(call(**members), times=2))

    assert transcript.labels.count(MESSAGE) == 1
    assert transcript.labels.index(MESSAGE) < transcript.labels.index("session/request_permission?")
    asked = transcript.of("session/request_permission", "request")
    assert f"\n\n{PLAN}\n\n" in transcript.text()
    for each in asked:
        assert (each.params["toolCall"], each.params["options"]) == (call(**members), OPTIONS)


@pytest.mark.parametrize(
    "members",
    [{"kind": "execute", "rawInput": {"plan": PLAN}}, {"content": []}, {"rawInput": {"plan": 1}}],
)
async def test_other_requests_show_nothing(chain, members):
    transcript = await run(chain, PlanApproval(), approving(call(**members)))

    assert "session/request_permission?" in transcript.labels
    assert MESSAGE not in transcript.labels
