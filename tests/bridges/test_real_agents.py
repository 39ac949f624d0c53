"""Third-party coding agents use a server over ACP, with a scripted model.

Opt-in, since it fetches packages: `ACP_TEST_CLAUDE=1`, `ACP_TEST_CODEX=1`, `ACP_TEST_FAST_AGENT=1`,
`ACP_TEST_GEMINI=1`, `ACP_TEST_OPENCODE=1`, `ACP_TEST_QWEN=1`, `ACP_TEST_VIBE=1`.
"""

from __future__ import annotations

import json
import os
import re
from contextlib import asynccontextmanager

import attrs
import pytest
from support.bridges_real_agents import Model, conversation
from support.mcp_providers import Provider, declaration, toolbox
from support.measure_questions import AGENTS
from support.record_agents import ALL_PROGRAMS

pytestmark = pytest.mark.external

PROMPT = "Add 20 and 22."
FOUND = "select:mcp__tools__add"
"""What a model asks that does not see all tools."""


@attrs.define(eq=False)
class AddingModel(Model):
    """Calls `add` of the server `tools`, once, and remembers whether it saw the sum."""

    sums: list[bool] = attrs.field(factory=list)
    _called: bool = False

    async def answer(self, asked):
        text = json.dumps(asked["messages"])
        if self._called or PROMPT not in text:
            self.sums.append("42" in text.split(PROMPT)[-1])
            return {"role": "assistant", "content": "done"}, "stop"
        offered = json.dumps(asked.get("tools") or [])
        numbers = {"a": 20, "b": 22}
        if add := re.search(r'"name": "([^"]*tools[^"]*add)"', offered):
            self._called = True
            return called(add[1], numbers)
        if '"mcp__tools"' in offered:  # codex-acp: a namespace with tools
            self._called = True
            return called("add", numbers, namespace="mcp__tools")
        if '"run_typescript"' in offered:  # vibe: the model writes a program that calls tools
            self._called = True
            code = "async function main() { return await tools.mcp_tools.add({a: 20, b: 22}); }"
            return called("run_typescript", {"code": code})
        if search := re.search(r'"name": "(tool_search|ToolSearch)"', offered):
            if FOUND in text:
                self._called = True
                if search[1] == "ToolSearch":
                    return called("mcp__tools__add", numbers)
                return called("tool_call", {"name": "mcp__tools__add", "arguments": numbers})
            return called(search[1], {"query": FOUND})
        return {"role": "assistant", "content": "nothing to do"}, "stop"


def called(name, arguments, **more):
    function = {"name": name, "arguments": json.dumps(arguments), **more}
    call = {"index": 0, "id": f"call-{name}", "type": "function", "function": function}
    return {"role": "assistant", "content": None, "tool_calls": [call]}, "tool_calls"


def permit(params):
    option = next(one for one in params["options"] if one["kind"].startswith("allow"))
    return {"outcome": {"outcome": "selected", "optionId": option["optionId"]}}


@asynccontextmanager
async def prompted(name, binding, era, home):
    """Prompt an agent in a session with the server; yields the provider and the model."""
    agent, model, work = AGENTS[name], AddingModel(), home / "work"
    settings = ALL_PROGRAMS.get(name, agent)
    if not os.environ.get(agent.variable):
        pytest.skip(f"{agent.variable} is not set: it would fetch and run {name}")
    work.mkdir()

    def environment(url):
        return {**settings.environment(url, home), "GEMINI_CLI_TRUST_WORKSPACE": "true"}

    handlers = {"session/update": lambda params: None, "session/request_permission": permit}
    command = " ".join(agent.program())
    async with conversation(command, model, home, environment, handlers) as client:
        provider = Provider(client, binding, toolbox, era=era).mount()
        await client.initialize()
        session = await client.new_session(str(work), [declaration(binding)])
        await client.prompt(session, PROMPT)
    yield provider, model


@pytest.mark.parametrize(
    ("name", "binding", "era"),
    [
        ("claude-agent-acp", "stateless", "new"),
        ("codex-acp", "serverId", "new"),
        ("fast-agent", "acpId", "both"),
        ("gemini-cli", "acpId", "old"),
        ("opencode", "serverId", "both"),
        ("qwen-code", "stateless", "new"),
        ("qwen-code", "serverId", "old"),
        ("vibe", "serverId", "old"),
        ("vibe", "acpId", "new"),
    ],
)
async def test_an_agent_calls_a_tool_of_the_client(name, binding, era, tmp_path):
    async with prompted(name, binding, era, tmp_path) as (provider, model):
        assert "tools/call" in provider.methods()
        assert any(model.sums)
