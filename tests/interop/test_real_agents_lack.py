"""Adapters for what agents lack, and their commands, with real agents.

The agents come from npm, their model is scripted, on loopback. Opt-in, since it fetches packages:
`ACP_TEST_CLAUDE=1`, `ACP_TEST_CODEX=1`, `ACP_TEST_GEMINI=1`, `ACP_TEST_OPENCODE=1`,
`ACP_TEST_QWEN=1`. Without `prompt_content`, claude-agent-acp and codex-acp refuse audio, opencode
leaves it out; with `session_processes: 0`, the sessions of opencode have the MCP server of a name
that came last.
"""

from __future__ import annotations

import base64
import json
import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import attrs
import pytest
import trio
from support.bridges_real_agents import Model, from_npm, model_url
from support.record_agents import ALL_PROGRAMS, CODEX

from conductor.chainfile import ChainFile, load
from conductor.client.embedding import attach_file
from conductor.testing import FakeClient

AUDIO = {"type": "audio", "data": base64.b64encode(b"RIFF").decode(), "mimeType": "audio/x-wav"}
SERVER = """
import json, sys

for line in sys.stdin:
    asked = json.loads(line)
    if "id" not in asked:
        continue
    result = {}
    if asked["method"] == "initialize":
        result = {"protocolVersion": "2025-06-18", "capabilities": {"tools": {}}}
        result["serverInfo"] = {"name": "notes", "version": "1"}
    elif asked["method"] == "tools/list":
        result = {"tools": [{"name": sys.argv[1], "inputSchema": {"type": "object"}}]}
    answer = {"jsonrpc": "2.0", "id": asked["id"], "result": result}
    print(json.dumps(answer, separators=(",", ":")), flush=True)
"""
TOOLS = ("keep_alpha", "keep_beta")


@attrs.define(eq=False)
class RecordingModel(Model):
    """Says `Done.`, and remembers what it was asked."""

    asked: list[Mapping[str, Any]] = attrs.field(factory=list)

    async def answer(self, asked: Mapping[str, Any]) -> tuple[dict[str, Any], str]:
        self.asked.append(asked)
        return {"role": "assistant", "content": "Done."}, "stop"

    def about(self, prompt: str) -> list[str]:
        """The conversations with a prompt, and the tools that were offered with it, as JSON."""
        found = [json.dumps(each) for each in self.asked if each.get("tools")]
        return [each for each in found if prompt in each]


def chain_file(name: str, url: str, directory: Path, **members: Any) -> ChainFile:
    program, home = ALL_PROGRAMS[name], directory / "home"
    home.mkdir()
    command = from_npm(program.package, program.program, variable=program.variable)
    environment = {"HOME": str(home), **program.environment(url, home)}
    agent = {"run": [command, *program.arguments], "env": environment, "start_timeout": "60s"}
    file = directory / "chain.yaml"
    file.write_text(json.dumps({"version": 1, "agent": agent, **members}))
    return load(str(file))


@pytest.mark.parametrize("name", ["claude-agent-acp", CODEX, "opencode"])
async def test_audio_is_a_file_that_the_agent_can_look_at(name: str, tmp_path: Path) -> None:
    files, model = tmp_path / "files", RecordingModel()
    options = {"mode": "auto", "with": {"directory": str(files)}}
    async with model_url(model) as url:
        file = chain_file(name, url, tmp_path, adapt={"prompt_content": options})
        with trio.fail_after(120):
            async with attach_file(FakeClient, file) as attached:
                client = attached.client
                await client.initialize()
                session = await client.new_session(str(tmp_path))
                await client.prompt(session, [{"type": "text", "text": "Listen now."}, AUDIO])

    assert any(str(files) in each for each in model.about("Listen now."))


@pytest.mark.parametrize(
    ("name", "command", "says"),
    [
        ("claude-agent-acp", "/mcp", r"No MCP servers are configured\.(?! Add)"),
        (CODEX, "/status", "Token usage"),
        ("gemini-cli", "/about", "Gemini CLI Info"),
        ("qwen-code", "/about", "Qwen Code v"),
    ],
)
async def test_a_command_of_the_agent_works_behind_context(
    name: str, command: str, says: str, tmp_path: Path
) -> None:
    model, context = RecordingModel(), {"use": "context", "with": {"text": "Be brief."}}
    async with model_url(model) as url:
        file = chain_file(name, url, tmp_path, proxies=[context])
        with trio.fail_after(120):
            async with attach_file(FakeClient, file) as attached:
                client = attached.client
                await client.initialize()
                session = await client.new_session(str(tmp_path))
                await client.prompt(session, command)
                told = client.transcript.text()
                await client.prompt(session, "Listen now.")

    assert re.search(says, told)
    heard = model.about("Listen now.")
    assert ["Be brief." in each for each in heard] == [True] * max(1, len(heard))


async def test_sessions_have_the_mcp_server_of_their_own(tmp_path: Path) -> None:
    (tmp_path / "server.py").write_text(SERVER)
    model = RecordingModel()
    async with model_url(model) as url:
        file = chain_file("opencode", url, tmp_path)
        with trio.fail_after(120):
            async with attach_file(FakeClient, file) as attached:
                client, sessions = attached.client, []
                await client.initialize()
                for tool in TOOLS:
                    command = {
                        "command": sys.executable,
                        "args": [str(tmp_path / "server.py"), tool],
                    }
                    server = {"name": "notes", "env": [], **command}
                    sessions.append(await client.new_session(str(tmp_path), [server]))
                for session, tool in zip(sessions, TOOLS, strict=True):
                    await client.prompt(session, f"Go, number {tool[-4:]}.")

    offered = [
        {tool for tool in TOOLS if f"notes_{tool}" in model.about(f"number {each[-4:]}.")[0]}
        for each in TOOLS
    ]
    assert offered == [{tool} for tool in TOOLS]
