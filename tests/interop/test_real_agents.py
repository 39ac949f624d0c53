"""Adapters before real agents from npm, with a scripted model on loopback.

Opt-in, since it fetches packages: `ACP_TEST_CLAUDE=1`, `ACP_TEST_OPENCODE=1`, `ACP_TEST_QWEN=1`,
`ACP_TEST_GEMINI=1`, `ACP_TEST_CODEX=1`. claude-agent-acp speaks both versions of the protocol, so
that `v1_v2` converts for it in both directions; in version 2 it gives each subagent a session of
its own.
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
from support.record_agents import ALL_PROGRAMS, CODEX

from conductor.chainfile.model import ComponentSpec
from conductor.errors import RequestError
from conductor.proxy import Proxy
from conductor.testing import FakeClient, open_chain
from proxies.elicitation import Elicitation
from proxies.permissions import Permissions
from proxies.permissions.rules import Rule
from proxies.remember import Remember
from proxies.subagents import Subagents
from proxies.v1_v2 import V1V2

CLAUDE = "claude-agent-acp"
MAKES = {
    CLAUDE: ("Bash", {"command": "touch made", "description": "Make a file"}),
    CODEX: (
        "exec_command",
        {
            "cmd": "touch made",
            "sandbox_permissions": "require_escalated",
            "justification": "Make a file",
        },
    ),
}
"""The tool call that makes a file, after a question."""


@attrs.define(eq=False)
class DelegatingModel(Model):
    """Gives a task to a subagent, which makes a file; makes it itself; or asks the user."""

    results: list[str] = attrs.field(factory=list)
    """Conversations with the result of a tool."""

    async def answer(self, asked: Mapping[str, Any]) -> tuple[dict[str, Any], str]:
        told = json.dumps(asked["messages"])
        has_result = "tool_result" in told or asked["messages"][-1]["role"] == "tool"
        if asked.get("tools") and not has_result:
            if "DELEGATE" in told:
                task = {"description": "make it", "prompt": "MAKE a file"}
                return _call("Agent", {**task, "subagent_type": "general-purpose"})
            if "ASK" in told:
                options = [{"label": each, "description": each} for each in ("Red", "Blue")]
                question = {"question": "Which colour?", "header": "Colour", "options": options}
                return _call("AskUserQuestion", {"questions": [{**question, "multiSelect": False}]})
            if "MAKE" in told:
                return _call(*MAKES[CODEX if "exec_command" in str(asked["tools"]) else CLAUDE])
        if has_result:
            self.results.append(told)
        return {"role": "assistant", "content": "Done."}, "stop"


def _call(name: str, arguments: dict[str, Any]) -> tuple[dict[str, Any], str]:
    function = {"name": name, "arguments": json.dumps(arguments)}
    call = {"index": 0, "id": f"toolu_{name}", "type": "function", "function": function}
    return {"role": "assistant", "content": None, "tool_calls": [call]}, "tool_calls"


@asynccontextmanager
async def chain_with(
    name: str, directory: Path, *proxies: Proxy, model: Model | None = None
) -> AsyncIterator[FakeClient]:
    """A chain that ends with this agent, in a home directory of its own, and works in `work`."""
    program = ALL_PROGRAMS[name]
    home, work = directory / "home", directory / "work"
    for each in (home, work):
        each.mkdir(exist_ok=True)
    command = from_npm(program.package, program.program, variable=program.variable)
    async with model_url(model or DelegatingModel()) as url:
        environment = {"HOME": str(home), **program.environment(url, home)}
        agent = ComponentSpec(name=name, run=(command, *program.arguments), env=environment)
        with trio.fail_after(90):
            async with open_chain(*proxies, agent, bridged=False) as client:
                yield client


async def opened(client: FakeClient, work: Path) -> str:
    """A session of a client that answers no questions about other sessions, as most editors."""
    session = await client.new_session(str(work))

    def permit(params: Any) -> dict[str, Any]:
        if params["sessionId"] != session:
            raise RequestError(-32602, "Session not found")
        once = next(each for each in params["options"] if each["kind"] == "allow_once")
        return {"outcome": {"outcome": "selected", "optionId": once["optionId"]}}

    client.handlers["session/request_permission"] = permit
    return session


async def test_a_subagent_of_version_2_asks_a_client_of_version_1_in_its_own_session(
    tmp_path: Path,
) -> None:
    proxies = Subagents(), V1V2(agent_version=2)
    async with chain_with(CLAUDE, tmp_path, *proxies) as client:
        await client.initialize()
        session = await opened(client, tmp_path / "work")
        ended = await client.prompt(session, "DELEGATE it")
        await client.transcript.wait("session/update tool_call_update", count=2)
        updates = client.transcript.updates()
        sessions = {each.params["sessionId"] for each in client.transcript.of("session/update")}
        (asked,) = client.transcript.of("session/request_permission")

    assert ended["stopReason"] == "end_turn"
    titles = [each["title"] for each in updates if each["sessionUpdate"] == "tool_call"]
    assert titles == ["make it", "touch made"]
    assert sessions == {session}
    assert asked.params["sessionId"] == session


async def test_a_question_of_the_agent_reaches_a_client_without_forms(tmp_path: Path) -> None:
    model = DelegatingModel()
    async with chain_with(CLAUDE, tmp_path, Elicitation(), model=model) as client:
        await client.initialize()
        session = await client.new_session(str(tmp_path / "work"))
        await client.prompt(session, "ASK me")
        asked = client.transcript.text(session)
        await client.prompt(session, "question_0: Blue")
        said = client.transcript.text(session)

    assert "Which colour?" in asked
    assert "Done." in said
    assert "Blue" in model.results[-1]


@pytest.mark.parametrize("name", ALL_PROGRAMS)
async def test_a_client_of_version_2_has_turns_of_an_agent_of_version_1(
    name: str, tmp_path: Path
) -> None:
    async with chain_with(name, tmp_path, V1V2(agent_version=1)) as client:
        await client.initialize(version=2)
        session = await opened(client, tmp_path / "work")
        await client.prompt_turn(session, "MAKE it" if name in MAKES else "say so")
        kinds = [each["sessionUpdate"] for each in client.transcript.updates(session)]
        asked = client.transcript.of("session/request_permission")

    assert "Done." in client.transcript.text(session)
    assert bool(asked) is (name in MAKES)
    assert kinds.count("state_update") >= 2
    assert not {"tool_call", "current_mode_update", "plan"} & set(kinds)
    assert (tmp_path / "work" / "made").exists() is (name in MAKES)


@pytest.mark.parametrize("action", ["deny", "allow_once"])
@pytest.mark.parametrize("name", MAKES)
async def test_a_rule_decides_about_a_command_of_the_agent(
    name: str, action: Any, tmp_path: Path
) -> None:
    rules = Permissions([Rule(action, command="^touch made$")])
    async with chain_with(name, tmp_path, rules) as client:
        await client.initialize()
        await client.prompt(await opened(client, tmp_path / "work"), "MAKE it")

    assert (tmp_path / "work" / "made").exists() is (action == "allow_once")
    assert client.transcript.of("session/request_permission") == []


async def test_a_new_session_has_the_mode_that_was_last_selected(tmp_path: Path) -> None:
    modes = []
    setup = {"cwd": str(tmp_path / "work"), "mcpServers": []}
    for _ in range(2):
        async with chain_with(CLAUDE, tmp_path, Remember(directory=tmp_path / "kept")) as client:
            await client.initialize()
            result = await client.request("session/new", setup)
            modes.append(result["modes"]["currentModeId"])
            plan = {"sessionId": result["sessionId"], "modeId": "plan"}
            await client.request("session/set_mode", plan)

    assert modes[0] != "plan"
    assert modes[1] == "plan"
