"""An MCP client of an agent that does not read answers slows the server down."""

import sys

import pytest
from processes.test_bypass_of_a_provider import Server
from support.peers.process import peak, wait_until_idle
from support.reporting_agent import REPORTING_AGENT

SIZE, CALLS = 1_000_000, 40
LIMITS = {"max_buffered_bytes": "12MiB"}
BUDGET = 20 * 1024 * 1024

PROXY = f"""
import attrs

from conductor.proxy import Proxy, tool


@attrs.define
class Large(Proxy):
    @tool
    async def large(self, number: int) -> str:
        "Says much."
        return f"{{number:08d}}" + "x" * {SIZE}
"""


@pytest.mark.parametrize("calls", [CALLS, pytest.param(1000, marks=pytest.mark.long)])
def test_answers_that_an_mcp_client_does_not_read(run_chain, tmp_path, calls):
    """40 MB, or with --long 1 GB, of them; all come when it reads at last."""
    (tmp_path / "large.py").write_text(PROXY)
    (tmp_path / "agent.py").write_text(REPORTING_AGENT)
    spec = {"use": f"{tmp_path}/large.py:Large", "isolate": True, "name": "large"}
    agent = [sys.executable, str(tmp_path / "agent.py")]
    editor = run_chain(agent, spec, mcp_bridge="auto", limits=LIMITS)
    assert "result" in editor.initialize()
    answer = editor.answer(editor.request("session/new", cwd="/", mcpServers=[]))
    (entry,) = answer["result"]["_meta"]["given"]
    server = Server(entry)
    assert "result" in server.initialize()
    base = peak(editor.pid)

    for number in range(calls):
        server.send(number + 1, "tools/call", name="large", arguments={"number": number})
    wait_until_idle(editor.pid, server.process.pid)

    stalled = peak(editor.pid) - base
    came = [server.receive() for _ in range(calls)]
    assert sorted(message["id"] for message in came) == list(range(1, calls + 1))
    for message in came:
        text = message["result"]["content"][0]["text"]
        assert (text[:8], len(text)) == (f"{message['id'] - 1:08d}", SIZE + 8)
    assert (stalled < BUDGET, peak(editor.pid) - base < BUDGET) == (True, True)
    server.end()
    assert editor.leave() == 0
