"""The example chains with an agent that gives work to a subagent, in a session of its own."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from conductor.testing import open_chain

TREE = Path(__file__).parents[2]
CHAINS = {path.stem: path for path in (TREE / "chains").glob("*.yaml")}
AGENT = TREE / "tests/support/components/delegating_agent.py"
ELSEWHERE = {"hello", "ignored_rule", "mcp_tools", "registry", "remote", "sandbox"}
"""Chains with other components than plugins of this package."""
DIFFERENT = {"v1_v2"}
"""It converts for an agent of another version."""


CALL = {"toolCallId": "1", "title": "Read notes", "kind": "read"}
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
async def test_what_a_subagent_does_and_asks_passes_each_ready_made_proxy(client, tmp_path):
    async with client as client:
        await client.initialize(capabilities={"subagents": {}})
        session = await client.new_session(str(tmp_path))
        child = f"{session}.child"
        await client.prompt(session, "go")
        (asked,) = client.transcript.of("session/request_permission")
        assert (asked.params["sessionId"], asked.params["toolCall"]["toolCallId"]) == (child, "1")
        assert client.transcript.updates(child) == [{"sessionUpdate": "tool_call", **CALL}, SAID]
        assert client.transcript.text(session) == "yes"
