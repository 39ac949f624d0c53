"""The example chains with an agent that gives work to a subagent, in a session of its own; and that
ready-made proxies do with it what they do with the session of the user."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from support.subagents import idle, running

from conductor.testing import FakeAgent, open_chain
from proxies.budget import Budget, BudgetLimits
from proxies.hide_tools import HideTools
from proxies.permissions import Permissions
from proxies.permissions.rules import Rule
from proxies.redact import Redact
from proxies.usage import Usage

TREE = Path(__file__).parents[2]
CHAINS = {path.stem: path for path in (TREE / "chains").glob("*.yaml")}
AGENT = TREE / "tests/support/components/delegating_agent.py"
ELSEWHERE = {"hello", "ignored_rule", "mcp_tools", "registry", "remote", "sandbox"}
"""Chains with other components than plugins of this package."""
DIFFERENT = {"v1_v2"}
"""It converts for an agent of another version."""


CALL = {"toolCallId": "1", "title": "Read notes", "kind": "read"}
CLOSED = {"sessionUpdate": "tool_call_update", "toolCallId": "1", "status": "failed"}
"""The agent leaves the call unfinished."""
SAID = {"sessionUpdate": "agent_message_chunk", "content": {"type": "text", "text": "read"}}


@pytest.fixture
def client(request, tmp_path):
    """A client of an example chain, with the agent that has subagents."""
    name, tells_state = request.param
    chain = yaml.safe_load(CHAINS[name].read_text())
    options = {"directory": str(tmp_path), "node": "n", "tells_state": tells_state}
    chain["agent"] = {"use": f"{AGENT}:DelegatingAgent", "with": options}
    path = tmp_path / "chain.yaml"
    path.write_text(yaml.safe_dump(chain))
    return open_chain(path)


@pytest.mark.parametrize(
    "client",
    [
        (name, state)
        for name in sorted(CHAINS.keys() - ELSEWHERE - DIFFERENT)
        for state in (True, False)
    ],
    ids=lambda each: f"{each[0]} {'with' if each[1] else 'without'} states",
    indirect=True,
)
async def test_what_a_subagent_does_and_asks_passes_each_ready_made_proxy(
    client, tmp_path, request
):
    async with client as client:
        await client.initialize(capabilities={"subagents": {}})
        session = await client.new_session(str(tmp_path))
        child = f"{session}.child"
        await client.prompt(session, "go")
        (asked,) = client.transcript.of("session/request_permission")
        assert (asked.params["sessionId"], asked.params["toolCall"]["toolCallId"]) == (child, "1")
        closed = [CLOSED] if request.node.callspec.id == "normalize with states" else []
        called = {"sessionUpdate": "tool_call", **CALL}
        assert client.transcript.updates(child) == [called, SAID, *closed]
        assert client.transcript.text(session) == "yes"


SECRET = "ghp_" + "a1B2" * 9
COST = {"amount": 3, "currency": "USD"}


def text(said):
    content = {"type": "text", "text": said}
    return {"sessionUpdate": "agent_message_chunk", "content": content}


def is_denied(client, answers):
    return answers["asked"] == "reject" and not client.transcript.of("session/request_permission")


def is_masked(client, answers):
    return SECRET not in str(client.transcript.updates("child")) and "key" in str(
        client.transcript.updates("child")
    )


def is_hidden(client, answers):
    kinds = [each["sessionUpdate"] for each in client.transcript.updates("child")]
    return not {"tool_call", "tool_call_update"} & {*kinds} and "agent_message_chunk" in kinds


PROXIES = {
    "permissions": (lambda: Permissions([Rule("deny", kind=["edit"])]), is_denied),
    "redact": (Redact, is_masked),
    "hide_tools": (lambda: HideTools(kinds=["search"], hide_from="client"), is_hidden),
    "budget": (
        lambda: Budget(BudgetLimits(cost=2)),
        lambda client, answers: answers["second"]["stopReason"] == "refusal",
    ),
    "usage": (
        Usage,
        lambda client, answers: "3.0000 USD" in client.transcript.text("session-1"),
    ),
}


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("name", PROXIES)
async def test_a_proxy_does_with_a_subagent_what_it_does_with_its_user(name, version):
    make, has_effect = PROXIES[name]
    answers = {}

    async def work(session):
        search = {"toolCallId": "0", "title": "Find", "kind": "search", "status": "completed"}
        kind = "tool_call" if version == 1 else "tool_call_update"
        agent.update("child", {"sessionUpdate": kind, **search})
        agent.update("child", text(f"The key is {SECRET}."))
        cost = {"sessionUpdate": "usage_update", "used": 1, "size": 2, "cost": COST}
        agent.update("child", cost)
        edit = {"toolCallId": "1", "title": "Edit notes", "kind": "edit"}
        answers["asked"] = await agent.ask("child", edit)

    agent = FakeAgent(turns=[[running(), work, idle()]])
    async with open_chain(make(), agent) as client:
        await client.initialize(version=version, capabilities={"subagents": {}})
        session = await client.new_session("/work")
        await client.prompt_turn(session, "go")
        more = "/usage" if name == "usage" else "more"
        answers["second"] = await client.prompt_turn(session, more)

        assert has_effect(client, answers)
