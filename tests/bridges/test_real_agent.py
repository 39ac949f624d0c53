"""A third-party coding agent, qwen-code, uses a server over ACP; with a scripted model.

Opt-in, since it fetches a package from npm: `ACP_TEST_QWEN=1`. The model is a few lines of an
OpenAI-compatible server on loopback, which calls the one tool and repeats what it said.
"""

from __future__ import annotations

import json

import attrs
import pytest
from support.bridges_real_agents import Model, conversation, from_npm
from support.mcp_providers import Provider, declaration, toolbox

pytestmark = pytest.mark.external


@pytest.fixture(scope="module")
def qwen():
    """Its command line."""
    return f"{from_npm('@qwen-code/qwen-code', 'qwen', variable='ACP_TEST_QWEN')} --acp"


ADD = "mcp__tools__add"


@attrs.define(eq=False)
class AddingModel(Model):
    """Calls `add`, and then says the result of it."""

    called: bool = False
    record_update: list[str] = attrs.field(factory=list)
    """Results of the call."""

    async def answer(self, asked):
        tools = [one["function"]["name"] for one in asked.get("tools", ())]
        results = [m["content"] for m in asked.get("messages", ()) if m["role"] == "tool"]
        if self.called:
            self.record_update.append(json.dumps(results[-1]))
            return {"role": "assistant", "content": f"the tool said {results[-1]}"}, "stop"
        numbers = {"a": 20, "b": 22}
        if ADD in tools:
            name, arguments = ADD, numbers
        elif results and "tool_call" in tools:  # qwen-code 0.24: what was found is called by it
            name, arguments = "tool_call", {"name": ADD, "arguments": numbers}
        elif "tool_search" in tools:  # qwen-code shows MCP tools to a model that looks for them
            name, arguments = "tool_search", {"query": f"select:{ADD}"}
        else:
            return {"role": "assistant", "content": "nothing to do"}, "stop"
        self.called = name != "tool_search"
        function = {"name": name, "arguments": json.dumps(arguments)}
        call = {"index": 0, "id": f"call-{len(results)}", "type": "function", "function": function}
        return {"role": "assistant", "content": None, "tool_calls": [call]}, "tool_calls"


def at(url):
    return {
        "OPENAI_API_KEY": "none",
        "OPENAI_BASE_URL": url,
        "OPENAI_MODEL": "test",
        "NO_COLOR": "1",
    }


async def test_qwen_code_calls_a_tool_of_the_client(qwen, tmp_path):
    model = AddingModel()
    settings = tmp_path / ".qwen" / "settings.json"
    settings.parent.mkdir()
    settings.write_text(json.dumps({"security": {"auth": {"selectedType": "openai"}}}))
    work = tmp_path / "work"
    work.mkdir()
    said = []

    def permit(params):
        option = next(one for one in params["options"] if one["kind"].startswith("allow"))
        return {"outcome": {"outcome": "selected", "optionId": option["optionId"]}}

    handlers = {"session/update": said.append, "session/request_permission": permit}
    async with conversation(qwen, model, tmp_path, at, handlers) as client:
        provider = Provider(client, "serverId", toolbox).mount()
        await client.initialize()
        session = await client.new_session(str(work), [declaration("serverId")])
        stop = await client.prompt(session, "Add 20 and 22.")

    assert stop["stopReason"] == "end_turn"
    assert "42" in model.record_update[0]
    assert "tools/call" in provider.methods()
    assert "42" in json.dumps(said)
