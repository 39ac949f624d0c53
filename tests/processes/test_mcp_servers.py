"""`@tool` and `mcp_servers(session)` of a proxy in the conductor, isolated and stand-alone."""

from __future__ import annotations

import json
import sys
from functools import partial
from subprocess import PIPE
from typing import Any

import pytest
import trio
from support.bridge_harness import mcp_client, receive, request
from support.peers import encoded
from support.reporting_agent import REPORTING_AGENT

PROXY = """
import os

import attrs
from mcp.server.mcpserver import MCPServer

from conductor.proxy import Context, Proxy, run, tool


@attrs.define
class Notes(Proxy):
    greeting: str = "hello"

    @tool
    async def greet(self, context: Context) -> str:
        "Greets the user."
        return f"{self.greeting} in {context.session.cwd}"

    @tool
    async def place(self) -> list[int]:
        return [os.getpid(), os.getppid()]

    def mcp_servers(self, session):
        pages = MCPServer("pages")

        @pages.resource("notes://{name}")
        def note(name: str) -> str:
            return f"{self.greeting} {name}"

        return [pages, {"name": "docs", "command": "/bin/true", "args": [session.cwd]}]


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
def test_tools_and_servers_work_in_every_process(kind, run_chain, tmp_path):
    file = tmp_path / "notes_proxy.py"
    file.write_text(PROXY)
    (tmp_path / "agent.py").write_text(REPORTING_AGENT)
    agent = [sys.executable, str(tmp_path / "agent.py")]
    editor = run_chain(agent, component(kind, str(file)), mcp_bridge="auto")
    assert "result" in editor.initialize()
    answer = editor.answer(editor.request("session/new", cwd="/work", mcpServers=[]))
    given = {each["name"]: each for each in answer["result"]["_meta"]["given"]}

    async def use(mode: str) -> list[Any]:
        with trio.fail_after(60):
            async with mcp_client(given["Notes"], mode=mode) as mcp:
                greeted = await mcp.call_tool("greet", {})
                place = await mcp.call_tool("place", {})
            async with mcp_client(given["pages"], mode=mode) as mcp:
                note = await mcp.read_resource("notes://ann")
        return [
            greeted.content[0].text,
            note.contents[0].text,
            place.structured_content["result"],
        ]

    assert given["docs"] == {"name": "docs", "command": "/bin/true", "args": ["/work"], "env": []}
    for mode in ("legacy", "auto"):
        *said, (pid, parent) = trio.run(use, mode)
        assert said == ["hi in /work", "hi ann"]
        conductor = editor.process.pid
        assert conductor in (pid, parent)
        assert (pid == conductor) == (kind == "in process")
    assert editor.leave() == 0


CHAIN_OF_PROXIES = "version: 1\nproxies:\n  - use: ./notes.py:Notes\n    isolate: %s\n"


@pytest.mark.parametrize("kind", ["stand-alone", "true"])
async def test_a_tool_under_a_conductor_that_announces_no_mcp_over_acp(tmp_path, kind):
    """The test plays the conductor: codex and others refuse sessions with such a server."""
    (tmp_path / "notes.py").write_text(PROXY)
    (tmp_path / "chain.yaml").write_text(CHAIN_OF_PROXIES % kind)
    served = ["-m", "conductor", "proxy", "chain.yaml"]
    argv = [sys.executable, *(["notes.py"] if kind == "stand-alone" else served)]
    start = partial(trio.run_process, argv, stdin=PIPE, stdout=PIPE, cwd=tmp_path)
    with trio.fail_after(60):
        async with trio.open_nursery() as nursery:
            process = await nursery.start(start)
            hello = {"protocolVersion": 1, "clientCapabilities": {}}
            asked = await request(process, 0, "proxy/initialize", hello)
            result = {"protocolVersion": 1, "agentCapabilities": {}}
            await process.stdin.send_all(encoded({"id": asked["id"], "result": result}))
            await receive(process)
            set_up = await request(process, 1, "session/new", {"cwd": "/", "mcpServers": []})
            notes, _, docs = set_up["params"]["params"]["mcpServers"]
            result = {"sessionId": "s1"}
            await process.stdin.send_all(encoded({"id": set_up["id"], "result": result}))
            async with mcp_client(notes) as mcp:
                tools = [each.name for each in (await mcp.list_tools()).tools]
            await process.stdin.aclose()

    assert notes["name"] == "Notes"
    assert docs["command"] == "/bin/true"
    assert tools == ["greet", "place"]
