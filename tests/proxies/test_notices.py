from __future__ import annotations

import pytest

from conductor.testing import FakeAgent
from proxies.notices import NoticesAsText

NOTICE = {"sessionUpdate": "notice", "severity": "warning", "title": "Slow", "description": "5 s"}


def agent_with_a_notice(update=NOTICE):
    """An agent that sends a notice to clients that announce that they show notices."""
    agent = FakeAgent(turns=[[update]])

    async def prompt(params):
        asked = agent.transcript.of("initialize", "request")[0].params
        if (asked["clientCapabilities"].get("session") or {}).get("notices") is not None:
            agent.update(params["sessionId"], update)
        return {"stopReason": "end_turn"}

    agent.handlers["session/prompt"] = prompt
    return agent


async def updates(chain, *components, capabilities):
    async with chain(*components) as client:
        await client.initialize(capabilities=capabilities)
        await client.prompt(await client.new_session("/work"), "go")
    return [each.params["update"] for each in client.transcript.of("session/update")]


@pytest.mark.parametrize("capabilities", [{}, {"session": None}, {"session": {"notices": None}}])
async def test_a_notice_becomes_text(chain, capabilities):
    found = await updates(chain, NoticesAsText(), agent_with_a_notice(), capabilities=capabilities)

    text = {"type": "text", "text": "\n\n[warning: Slow: 5 s]\n\n"}
    assert found == [{"sessionUpdate": "agent_message_chunk", "content": text}]


async def test_meta_is_kept_and_information_has_no_prefix(chain):
    update = {"sessionUpdate": "notice", "severity": "info", "title": "Hi", "_meta": {"a": 1}}
    found = await updates(chain, NoticesAsText(), agent_with_a_notice(update), capabilities={})

    assert found[0]["content"]["text"] == "\n\n[Hi]\n\n"
    assert found[0]["_meta"] == {"a": 1}


async def test_a_client_that_shows_notices_gets_them_as_they_are(chain):
    capabilities = {"session": {"notices": {}}}
    agent = agent_with_a_notice()
    found = await updates(chain, NoticesAsText(), agent, capabilities=capabilities)

    assert found == [NOTICE]
