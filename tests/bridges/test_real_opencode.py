"""Two sessions of opencode, which shares MCP servers among sessions, each with a server `notes`.

Opt-in, since it fetches a package from npm: `ACP_TEST_OPENCODE=1`. The model is a few lines of an
OpenAI-compatible server on loopback: it calls the tool that the prompt names.
"""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import attrs
import pytest
import trio
from support.bridges_real_agents import Model, conversation, from_npm
from support.mcp_providers import declaration

from conductor.client.acp_client import Client

pytestmark = pytest.mark.external


@pytest.fixture(scope="module")
def opencode():
    """Its command line."""
    return f"{from_npm('opencode-ai', 'opencode', variable='ACP_TEST_OPENCODE')} acp"


@attrs.define(eq=False)
class ObedientModel(Model):
    """Calls the tool after `CALL` in the last prompt, once, and then says what it answered."""

    together: int = 1
    """So many prompts have to be there before the first tool is called."""
    seen: dict[str, list[str]] = attrs.field(factory=dict)
    """The tools of the servers that a model was offered, by the tool that its prompt names."""
    record_update: dict[str, str] = attrs.field(factory=dict)
    """What tools answered."""
    _all_here: trio.Event = attrs.field(factory=trio.Event)

    async def answer(self, asked):
        tools = [one["function"]["name"] for one in asked.get("tools", ())]
        text = json.dumps([m for m in asked["messages"] if m["role"] == "user"][-1])
        if "CALL " not in text or not tools:  # a title for the session, say
            return {"role": "assistant", "content": "done"}, "stop"
        wanted = text.split("CALL ")[1].split(".")[0]
        last = asked["messages"][-1]
        if last["role"] == "tool":
            self.record_update[wanted] = json.dumps(last["content"])
            return {"role": "assistant", "content": "done"}, "stop"
        self.seen[wanted] = [name for name in tools if name.startswith("notes")]
        if len(self.seen) >= self.together:
            self._all_here.set()
        await self._all_here.wait()
        function = {"name": wanted, "arguments": '{"a": 20, "b": 22}'}
        call = {"index": 0, "id": f"call-{wanted}", "type": "function", "function": function}
        return {"role": "assistant", "content": None, "tool_calls": [call]}, "tool_calls"


@attrs.define(eq=False)
class Notes:
    """Offers one server for each session, with the one tool `add`; notes who was called."""

    calls: list[tuple[str, str]] = attrs.field(factory=list)
    """The server that was called, and the session that the call was said to be of."""

    def connect(self, params):
        return {"connectionId": params["serverId"]}

    def message(self, params):
        server, method = params["connectionId"], params["method"]
        if method == "initialize":
            return {
                "protocolVersion": "2025-06-18",
                "capabilities": {"tools": {}},
                "serverInfo": {"name": "notes", "version": "1"},
            }
        if method == "tools/list":
            numbers = {"a": {"type": "number"}, "b": {"type": "number"}}
            schema = {"type": "object", "properties": numbers}
            return {"tools": [{"name": "add", "inputSchema": schema}]}
        if method == "tools/call":
            self.calls.append((server, params["_meta"]["sessionId"]))
            return {"content": [{"type": "text", "text": f"42 of {server}"}]}
        return {}


@asynccontextmanager
async def chatting(
    opencode: str, model: ObedientModel, home: Path
) -> AsyncIterator[tuple[Client, Notes]]:
    notes = Notes()
    handlers = {
        "mcp/connect": notes.connect,
        "mcp/message": notes.message,
        "mcp/disconnect": lambda params: {},
        "session/update": lambda params: None,
    }
    async with conversation(opencode, model, home, at, handlers) as client:
        await client.initialize()
        yield client, notes


def at(url):
    settings = {
        "autoupdate": False,
        "share": "disabled",
        "model": "local/test",
        "small_model": "local/test",
        "provider": {
            "local": {
                "npm": "@ai-sdk/openai-compatible",
                "options": {"baseURL": url, "apiKey": "none"},
                "models": {"test": {"tool_call": True}},
            }
        },
    }
    return {
        "OPENCODE_CONFIG_CONTENT": json.dumps(settings),
        "OPENCODE_DISABLE_MODELS_FETCH": "1",
        "OPENCODE_DISABLE_DEFAULT_PLUGINS": "1",
    }


async def two_sessions(client: Client, work: Path) -> tuple[str, str]:
    await trio.Path(work).mkdir()
    first = await client.new_session(str(work), [declaration("serverId", "notes", "server-a")])
    second = await client.new_session(str(work), [declaration("serverId", "notes", "server-b")])
    return first, second


async def test_a_model_sees_the_server_of_its_own_session(opencode, tmp_path):
    model = ObedientModel()
    async with chatting(opencode, model, tmp_path) as (client, notes):
        first, second = await two_sessions(client, tmp_path / "work")
        for session, tool in [(first, "notes_add"), (second, "notes-2_add"), (first, "notes_add")]:
            await client.prompt(session, f"CALL {tool}. Now.")
            assert model.seen == {tool: [tool]}
            model.seen.clear()

    assert notes.calls == [("server-a", first), ("server-b", second), ("server-a", first)]


async def test_sessions_that_work_at_the_same_time_reach_their_own_servers(opencode, tmp_path):
    """Each model is made to call the tool of its own session."""
    model = ObedientModel(together=2)
    async with chatting(opencode, model, tmp_path) as (client, notes):
        first, second = await two_sessions(client, tmp_path / "work")
        async with trio.open_nursery() as nursery:
            nursery.start_soon(client.prompt, first, "CALL notes_add. Now.")
            nursery.start_soon(client.prompt, second, "CALL notes-2_add. Now.")

    assert sorted(notes.calls) == [("server-a", first), ("server-b", second)]
    assert "42 of server-a" in model.record_update["notes_add"]


async def test_a_call_to_the_other_sessions_server_is_refused(opencode, tmp_path):
    """Both models are active, and each calls the tool of the other session."""
    model = ObedientModel(together=2)
    async with chatting(opencode, model, tmp_path) as (client, notes):
        first, second = await two_sessions(client, tmp_path / "work")
        async with trio.open_nursery() as nursery:
            nursery.start_soon(client.prompt, first, "CALL notes-2_add. Now.")
            nursery.start_soon(client.prompt, second, "CALL notes_add. Now.")

    assert notes.calls == []
    for tool in ("notes_add", "notes-2_add"):
        # By the bridge, or by opencode where the tool was not in the list yet.
        assert re.search("belongs to another session|unavailable tool", model.record_update[tool])
