"""The whole thing as an editor starts it: processes, pipes, the entry point, the shim."""

from __future__ import annotations

import sys

import trio
from support.mcp_providers import Provider, declaration, toolbox

from conductor.client.acp_client import Client
from conductor.tracing.reader import Trace
from conductor.tracing.records import ResponseRecord
from conductor.transport.child_process import start_child


async def test_an_agent_behind_the_command_calls_a_tool_of_the_client(tmp_path):
    agent = f"{sys.executable} -m conductor.testing.agent"
    command = ["agent", "--trace", str(tmp_path / "t.jsonl"), agent]
    child = start_child(
        [sys.executable, "-m", "conductor", *command], env={"PATH": "/usr/bin"}, cwd=None
    )
    said = []
    client = Client(child.transport, {"session/update": said.append})
    try:
        with trio.fail_after(20):
            async with client.open():
                provider = Provider(client, "serverId", toolbox).mount()
                answer = await client.initialize()
                session = await client.new_session("/", [declaration("serverId")])
                stop = await client.prompt(session, 'call tools add {"a": 20, "b": 22}')
                client.close()
                status = await child.wait()
    finally:
        child.signal(9)
        child.close()

    texts = [
        u["update"]["content"]["text"]
        for u in said
        if u["update"]["sessionUpdate"] == "agent_message_chunk"
    ]
    assert answer["agentCapabilities"]["mcpCapabilities"]["acp"] is True
    assert stop == {"stopReason": "end_turn"}
    assert "42" in "".join(texts)
    assert status == "exited with status 0"
    assert "tools/call" in provider.methods()
    check_trace(Trace.load(tmp_path / "t.jsonl"))


def check_trace(trace):
    """The call is an MCP request to the client, linked to its answer and to the prompt's hop."""
    mcp = [each for each in trace.messages if getattr(each, "protocol", "") == "mcp"]
    (call,) = (each for each in mcp if each.method == "tools/call")
    (answer,) = (
        each
        for each in trace.messages
        if isinstance(each, ResponseRecord) and each.request == call.n
    )
    assert (call.sender, call.receiver, call.hop) == ("mcp-bridge", "client", 0)
    assert call.mcp_server is not None
    assert call.params["arguments"] == {"a": 20, "b": 22}
    assert (answer.sender, answer.method, answer.is_error) == ("client", "tools/call", False)
    assert answer.payload["content"][0]["text"] == "42"
    assert {each.receiver for each in mcp} <= {"client", "mcp-bridge"}
