"""MCP methods and `mcp_servers(session)` of a proxy in the conductor, isolated and stand-alone."""

from __future__ import annotations

import json
import sys
from typing import Any

import pytest
import trio
from mcp.types import ElicitResult
from support.bridge_harness import mcp_client
from support.reporting_agent import REPORTING_AGENT

PROXY = """
import os

import attrs

from conductor.proxy import Context, Proxy, prompt, resource, run, tool


@attrs.define
class Notes(Proxy):
    greeting: str = "hello"

    @tool
    async def greet(self, context: Context) -> str:
        "Greets the user."
        schema = {"type": "object", "properties": {"name": {"type": "string"}}}
        answer = await context.elicit("Who are you?", schema)
        return f"{self.greeting} {answer.data['name']} in {context.session.cwd}"

    @tool
    async def place(self) -> list[int]:
        return [os.getpid(), os.getppid()]

    @resource("notes://{name}")
    async def note(self, name: str) -> str:
        return f"{self.greeting} {name}"

    @prompt
    async def ask(self, about: str) -> str:
        return f"What is {about}?"

    def mcp_servers(self, session):
        return [{"name": "docs", "command": "/bin/true", "args": [session.cwd]}]


run(Notes)
"""


def component(kind: str, file: str) -> dict[str, Any]:
    options = {"greeting": "hi"}
    if kind == "stand-alone":
        env = {"ACP_PROXY_OPTIONS": json.dumps(options)}
        return {"run": [sys.executable, file], "env": env, "name": "notes"}
    isolate = {"isolate": True} if kind == "isolated" else {}
    return {"use": f"{file}:Notes", "with": options, "name": "notes", **isolate}


@pytest.mark.parametrize("kind", ["in process", "isolated", "stand-alone"])
def test_mcp_methods_and_servers_work_in_every_process(kind, run_chain, tmp_path):
    file = tmp_path / "notes_proxy.py"
    file.write_text(PROXY)
    (tmp_path / "agent.py").write_text(REPORTING_AGENT)
    agent = [sys.executable, str(tmp_path / "agent.py")]
    editor = run_chain(agent, component(kind, str(file)), mcp_bridge="auto")
    assert "result" in editor.initialize()
    answer = editor.answer(editor.request("session/new", cwd="/work", mcpServers=[]))
    given = {each["name"]: each for each in answer["result"]["_meta"]["given"]}

    async def answer_user(_context: Any, params: Any) -> ElicitResult:
        return ElicitResult(action="accept", content={"name": params.message[:3]})

    async def use(mode: str) -> list[Any]:
        with trio.fail_after(60):
            async with mcp_client(
                given["Notes"], mode=mode, elicitation_callback=answer_user
            ) as mcp:
                greeted = await mcp.call_tool("greet", {})
                note = await mcp.read_resource("notes://ann")
                asked = await mcp.get_prompt("ask", {"about": "tea"})
                place = await mcp.call_tool("place", {})
        return [
            greeted.content[0].text,
            note.contents[0].text,
            asked.messages[0].content.text,
            place.structured_content["result"],
        ]

    assert given["docs"] == {"name": "docs", "command": "/bin/true", "args": ["/work"], "env": []}
    for mode in ("legacy", "auto"):
        *said, (pid, parent) = trio.run(use, mode)
        assert said == ["hi Who in /work", "hi ann", "What is tea?"]
        conductor = editor.process.pid
        assert conductor in (pid, parent)
        assert (pid == conductor) == (kind == "in process")
    assert editor.leave() == 0
