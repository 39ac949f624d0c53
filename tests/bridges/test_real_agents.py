"""Third-party coding agents use a server over ACP, with a scripted model.

Opt-in, since it fetches packages from npm: `ACP_TEST_CLAUDE=1`, `ACP_TEST_CODEX=1`,
`ACP_TEST_GEMINI=1`, `ACP_TEST_OPENCODE=1`, `ACP_TEST_QWEN=1`.
"""

from __future__ import annotations

import json
import re
from contextlib import asynccontextmanager

import attrs
import pytest
from support.bridges_real_agents import Model, conversation, from_npm
from support.mcp_providers import Provider, declaration, toolbox
from support.record_agents import ALL_PROGRAMS

pytestmark = pytest.mark.external

PROMPT = "Add 20 and 22."


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
        if "tool_search" in offered and "select:" in text:  # qwen-code: what was found is called
            self._called = True
            return called("tool_call", {"name": "mcp__tools__add", "arguments": numbers})
        if "tool_search" in offered:
            return called("tool_search", {"query": "select:mcp__tools__add"})
        return {"role": "assistant", "content": "nothing to do"}, "stop"


def called(name, arguments):
    function = {"name": name, "arguments": json.dumps(arguments)}
    call = {"index": 0, "id": f"call-{name}", "type": "function", "function": function}
    return {"role": "assistant", "content": None, "tool_calls": [call]}, "tool_calls"


def permit(params):
    option = next(one for one in params["options"] if one["kind"].startswith("allow"))
    return {"outcome": {"outcome": "selected", "optionId": option["optionId"]}}


@asynccontextmanager
async def prompted(name, binding, era, home):
    """Prompt an agent in a session with the server; yields the provider and the model."""
    agent, model, work = ALL_PROGRAMS[name], AddingModel(), home / "work"
    program = from_npm(agent.package, agent.program, variable=agent.variable)
    work.mkdir()

    def environment(url):
        return {**agent.environment(url, home), "GEMINI_CLI_TRUST_WORKSPACE": "true"}

    handlers = {"session/update": lambda params: None, "session/request_permission": permit}
    command = " ".join((program, *agent.arguments))
    async with conversation(command, model, home, environment, handlers) as client:
        provider = Provider(client, binding, toolbox, era=era).mount()
        await client.initialize()
        session = await client.new_session(str(work), [declaration(binding)])
        await client.prompt(session, PROMPT)
    yield provider, model


@pytest.mark.parametrize(
    ("name", "binding", "era"),
    [
        ("gemini-cli", "acpId", "old"),
        ("opencode", "serverId", "both"),
        ("qwen-code", "stateless", "new"),
        ("qwen-code", "serverId", "old"),
    ],
)
async def test_an_agent_calls_a_tool_of_the_client(name, binding, era, tmp_path):
    async with prompted(name, binding, era, tmp_path) as (provider, model):
        assert "tools/call" in provider.methods()
        assert any(model.sums)


@pytest.mark.parametrize(
    ("name", "binding", "era"),
    [("claude-agent-acp", "stateless", "new"), ("codex-acp", "serverId", "new")],
)
async def test_an_agent_lists_the_tools_of_the_client(name, binding, era, tmp_path):
    """Their models call tools in other ways than the scripted one: by a search, by namespaces."""
    async with prompted(name, binding, era, tmp_path) as (provider, _):
        assert "tools/list" in provider.methods()
