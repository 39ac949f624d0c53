"""A bypassed provider of an MCP server: the agent's calls to the server are answered."""

import json
import os
import select
import subprocess
import sys
from signal import SIGKILL

import pytest
from support.peers.process import PATIENCE, encoded
from support.reporting_agent import REPORTING_AGENT
from support.waiting import told

PROXY = """
import attrs
import trio

from conductor.proxy import Proxy, tool


@attrs.define
class Waiting(Proxy):
    @tool
    async def wait(self) -> str:
        "Waits."
        await trio.sleep_forever()

    @tool
    async def hello(self) -> str:
        "Says hello."
        return "hello"
"""


class Server:
    """The stdio server that the agent was given, as an agent would use it."""

    def __init__(self, entry):
        self.process = subprocess.Popen(
            [entry["command"], *entry["args"]],
            env={one["name"]: one["value"] for one in entry["env"]},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            bufsize=0,
        )
        self.pieces = [b""]

    def send(self, id, method, **params):
        self.process.stdin.write(encoded({"id": id, "method": method, "params": params}))

    def receive(self):
        while b"\n" not in self.pieces[-1]:
            assert select.select([self.process.stdout], [], [], PATIENCE)[0], "the server is silent"
            self.pieces.append(self.process.stdout.read(1_000_000))
            assert self.pieces[-1], "the server ended"
        line, _, rest = b"".join(self.pieces).partition(b"\n")
        self.pieces = [rest]
        return json.loads(line)

    def ask(self, id, method, **params):
        self.send(id, method, **params)
        return self.receive()

    def initialize(self):
        who = {"name": "test", "version": "1"}
        hello = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": who}
        answer = self.ask(0, "initialize", **hello)
        if "result" in answer:
            self.process.stdin.write(encoded({"method": "notifications/initialized"}))
        return answer

    def end(self):
        self.process.stdin.close()
        self.process.stdout.close()
        return self.process.wait(PATIENCE)


@pytest.fixture
def given(run_chain, tmp_path):
    """A chain whose proxy offers a server, and what the agent was given for it."""
    (tmp_path / "waiting.py").write_text(PROXY)
    (tmp_path / "agent.py").write_text(REPORTING_AGENT)
    spec = {
        "use": f"{tmp_path}/waiting.py:Waiting",
        "isolate": True,
        "name": "w",
        "on_failure": "bypass",
    }
    editor = run_chain([sys.executable, str(tmp_path / "agent.py")], spec, mcp_bridge="auto")
    assert "result" in editor.initialize()
    answer = editor.answer(editor.request("session/new", cwd="/", mcpServers=[]))
    (entry,) = answer["result"]["_meta"]["given"]
    return editor, entry


def test_tool_calls_to_a_bypassed_provider_are_answered_with_an_error(given):
    editor, entry = given
    server = Server(entry)
    assert "result" in server.initialize()
    assert "hello" in str(server.ask(1, "tools/call", name="hello", arguments={})["result"])
    server.send(2, "tools/call", name="wait", arguments={})
    server.send(3, "ping")
    assert server.receive()["id"] == 3  # so the call is under way
    (proxy,) = (p for p in editor.components if "standalone" in " ".join(p.cmdline()))

    os.kill(proxy.pid, SIGKILL)

    cut = server.receive()
    assert cut["id"] == 2
    assert cut["error"]["message"] == "component 'w' was ended by SIGKILL"
    told(editor, "the chain goes on without it")
    late = server.ask(4, "tools/call", name="hello", arguments={})
    assert (late["id"], "error" in late) == (4, True)
    server.end()
    another = Server(entry)
    assert "error" in another.initialize()
    another.end()
    assert editor.answer(editor.prompt("x"))["result"] == {"stopReason": "end_turn"}
    assert editor.leave() == 0
