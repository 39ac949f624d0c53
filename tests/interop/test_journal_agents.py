"""`journal` with real agents from npm, which cannot list or load sessions.

Opt-in, since it fetches packages: `ACP_TEST_CLAUDE=1`, `ACP_TEST_OPENCODE=1`, `ACP_TEST_QWEN=1`,
`ACP_TEST_GEMINI=1`. The model is a few lines on loopback; a proxy behind `journal` takes from the
agent what it announces about its own sessions.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import attrs
import pytest
import trio
from support.bridges_real_agents import Model, from_npm, model_url
from support.record_agents import PROGRAMS

from conductor.chainfile.model import ComponentSpec
from conductor.proxy import Proxy, RequestError, on
from conductor.testing import FakeClient, open_chain
from proxies.journal import Journal
from proxies.journal.session import OPENING

TOLD, ASKED = "The word is tangerine.", "Which word was it?"


@attrs.define
class Forgetful(Proxy):
    """An agent that forgets its sessions at its end."""

    @on("initialize")
    async def initialize(self, params: dict[str, Any], forward: Any) -> Any:
        result = await forward()
        capabilities = {**result["agentCapabilities"], "loadSession": False}
        capabilities["sessionCapabilities"] = {}
        return {**result, "agentCapabilities": capabilities}

    @on("session/list", "session/load", "session/resume", "session/fork", "session/delete")
    async def refuse(self, params: dict[str, Any], forward: Any) -> Any:
        raise RequestError(-32601, "Method not found")


@attrs.define(eq=False)
class AttentiveModel(Model):
    """Knows the word only if it is in the conversation."""

    asked: list[str] = attrs.field(factory=list)
    """The conversations of which the last prompt asks for the word, as JSON."""

    async def answer(self, asked: Mapping[str, Any]) -> tuple[dict[str, Any], str]:
        messages = json.dumps([each for each in asked["messages"] if each["role"] == "user"])
        if ASKED not in messages or not asked.get("tools"):  # without tools: a title, say
            return {"role": "assistant", "content": "Noted."}, "stop"
        self.asked.append(messages)
        known = "tangerine" in messages
        return {"role": "assistant", "content": "Tangerine." if known else "No idea."}, "stop"


@asynccontextmanager
async def chain_with(
    name: str, url: str, directory: Path, *proxies: Proxy
) -> AsyncIterator[FakeClient]:
    """One start of the agent, in the same home directory each time."""
    program = PROGRAMS[name]
    home, work = directory / "home", directory / "work"
    for each in (home, work):
        each.mkdir(exist_ok=True)
    command = from_npm(program.package, program.program, variable=program.variable)
    environment = {"HOME": str(home), **program.environment(url, home)}
    agent = ComponentSpec(name=name, run=(command, *program.arguments), env=environment)
    with trio.fail_after(90):
        async with open_chain(*proxies, Forgetful(), agent, bridged=False) as client:
            await client.initialize()
            yield client


@pytest.mark.parametrize("name", PROGRAMS)
async def test_a_new_process_of_the_agent_knows_the_session(name: str, tmp_path: Path) -> None:
    model, files = AttentiveModel(), tmp_path / "journal"
    setup: dict[str, Any] = {"cwd": str(tmp_path / "work"), "mcpServers": []}
    async with model_url(model) as url:
        async with chain_with(name, url, tmp_path, Journal(directory=files)) as client:
            session = await client.new_session(setup["cwd"])
            await client.prompt(session, TOLD)
        async with chain_with(name, url, tmp_path, Journal(directory=files)) as client:
            (listed,) = (await client.request("session/list", {}))["sessions"]
            await client.request("session/load", {**setup, "sessionId": session})
            contents = [each.get("content") for each in client.transcript.updates(session)]
            await client.prompt(session, ASKED)
            said = client.transcript.text()

    shown = [each["text"] for each in contents if isinstance(each, dict) and each["text"]]
    assert (listed["sessionId"], listed["title"]) == (session, TOLD)
    assert shown[:2] == [TOLD, "Noted."]
    assert "has not loaded this session" in shown[2]
    assert "Tangerine." in said
    assert OPENING in model.asked[0]
