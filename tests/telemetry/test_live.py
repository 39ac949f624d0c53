"""`--otel` of real processes, with an OTLP receiver."""

from __future__ import annotations

import json
import re
import subprocess
import sys

import pytest
from support.peers.process import ROOT
from support.raw_json import compact

pytestmark = pytest.mark.slow

HELLO = ROOT / "chains" / "hello.yaml"
TRACE, SPAN = "80e1afed08e019fc1110464cfa66635c", "7a085853722dc6d2"
COUNTED = "version: 1\nagent: {use: test-agent, with: {session_ids: counted}}\n"
CHAIN = """
version: 1
proxies:
  - name: first
    run: ["{python}", "{proxy}"]
  - use: usage
agent:
  use: test-agent
"""
PROXY = """
import attrs
from conductor.proxy import Proxy, run

@attrs.define
class Nothing(Proxy):
    pass

run(Nothing)
"""


def otel(receiver, **others):
    return {"OTEL_EXPORTER_OTLP_ENDPOINT": receiver.url, **others}


@pytest.mark.fast
def test_a_turn_is_one_trace_with_hops_tool_call_and_permission(run, tmp_path, receiver):
    (tmp_path / "proxy.py").write_text(PROXY)
    chain = CHAIN.format(python=sys.executable, proxy=tmp_path / "proxy.py")
    (tmp_path / "chain.yaml").write_text(chain)

    result = run(
        *("prompt", "--otel", "--permissions", "allow", "chain.yaml", "ask Deploy"),
        env=otel(receiver),
    )

    assert result.stdout == "Deploy: allow\n"
    turn = receiver.named("invoke_agent test-agent")
    of_turn = {each.name for each in receiver.spans if each.trace_id == turn.trace_id}
    assert of_turn == {
        "invoke_agent test-agent",
        "session/prompt usage",
        "session/prompt mcp-bridge",
        "session/prompt test-agent",
        "execute_tool edit",
        "session/request_permission mcp-bridge",
        "session/request_permission usage",
        "session/request_permission first",
        "session/request_permission client",
    }
    parents = ["session/request_permission client"]
    while (parent := receiver.parent_of(receiver.named(parents[-1]))) is not None:
        parents.append(parent)
    assert parents == [
        "session/request_permission client",
        "session/request_permission first",
        "session/request_permission usage",
        "session/request_permission mcp-bridge",
        "execute_tool edit",
        "session/prompt test-agent",
        "session/prompt mcp-bridge",
        "session/prompt usage",
        "invoke_agent test-agent",
    ]
    assert receiver.resources[0]["service.name"] == "acp-conductor"
    assert "Deploy" not in repr(receiver.spans)


TOOLS = """
import attrs
from conductor.proxy import Proxy, tool

@attrs.define
class Notes(Proxy):
    @tool
    async def look(self) -> str:
        \"\"\"Look.\"\"\"
        return "found"
"""


@pytest.fixture
def tools_chain(tmp_path):
    """A chain with an MCP server and an agent in a process; the bridge is inserted when needed."""
    (tmp_path / "notes.py").write_text(TOOLS)
    agent = f"agent: {{name: agent, run: [{sys.executable}, -m, conductor.testing.agent]}}"
    (tmp_path / "tools.yaml").write_text(
        f"version: 1\nproxies: [{{use: ./notes.py:Notes}}]\n{agent}\n"
    )
    return "tools.yaml"


def test_an_mcp_call_is_below_the_turn_on_each_hop(run, tools_chain, receiver):
    result = run("prompt", "--otel", tools_chain, "call Notes look {}", env=otel(receiver))

    assert "found" in result.stdout
    turn = receiver.named("invoke_agent test-agent")
    calls = [each for each in receiver.spans if each.name == "tools/call look"]
    assert {each.trace_id for each in calls} == {turn.trace_id}
    assert [receiver.parent_of(each) for each in calls][-1] == "session/prompt agent"
    assert {each.attributes["gen_ai.tool.name"] for each in calls} == {"look"}
    assert {each.attributes["mcp.method.name"] for each in calls} == {"tools/call"}
    assert not any(each.is_error for each in receiver.spans if "mcp" not in each.name)


def test_the_standard_environment_variables_are_followed(run, receiver):
    run(
        *("prompt", HELLO, "say hunter2-hunter2"),
        env={
            "ACP_CONDUCTOR_OTEL": "1",
            "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": f"{receiver.url}/elsewhere",
            "OTEL_EXPORTER_OTLP_HEADERS": "authorization=Bearer%20hunter2-hunter2",
            "OTEL_EXPORTER_OTLP_COMPRESSION": "gzip",
            "OTEL_SERVICE_NAME": "desk",
            "OTEL_RESOURCE_ATTRIBUTES": "deployment.environment.name=test",
            "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT": "true",
        },
    )

    assert receiver.headers[0]["path"] == "/elsewhere"
    assert receiver.headers[0]["authorization"] == "Bearer hunter2-hunter2"
    assert receiver.resources[0]["service.name"] == "desk"
    assert receiver.resources[0]["deployment.environment.name"] == "test"
    turn = receiver.named("invoke_agent test-agent")
    assert json.loads(turn.attributes["gen_ai.output.messages"])[0]["parts"][0]["content"] == "***"


def test_an_editor_continues_its_trace_and_the_agent_gets_it(run, tmp_path, receiver):
    def line(id, method, **params):
        return compact({"jsonrpc": "2.0", "id": id, "method": method, "params": params})

    meta = {"traceparent": f"00-{TRACE}-{SPAN}-01", "baggage": "k=v"}
    prompt = [{"type": "text", "text": "say hi"}]
    lines = [
        line(1, "initialize", protocolVersion=1),
        line(2, "session/new", cwd="/", mcpServers=[]),
        line(3, "session/prompt", sessionId="session-1", prompt=prompt, _meta=meta),
    ]
    (tmp_path / "chain.yaml").write_text(COUNTED)

    run(
        *("run", "--otel", "--trace", "t.jsonl", tmp_path / "chain.yaml"),
        input="\n".join(lines) + "\n",
        env=otel(receiver),
    )

    turn = receiver.named("invoke_agent test-agent")
    assert (turn.trace_id, turn.parent_id) == (TRACE, SPAN)
    records = [json.loads(each) for each in (tmp_path / "t.jsonl").read_text().splitlines()]
    (reached,) = (
        each["params"]["_meta"]
        for each in records
        if each.get("method") == "session/prompt" and each.get("to") == "Agent"
        if each["type"] == "request"
    )
    inner = receiver.named("session/prompt test-agent")
    assert reached["traceparent"] == f"00-{TRACE}-{inner.span_id}-01"
    assert reached["baggage"] == "k=v"


def test_half_an_emoji_is_a_question_mark_in_spans(run, tmp_path, receiver):
    lines = [
        '{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":1}}',
        '{"jsonrpc":"2.0","id":2,"method":"session/new","params":{"cwd":"/","mcpServers":[]}}',
        '{"jsonrpc":"2.0","id":3,"method":"session/prompt","params":{"sessionId":"session-1",'
        r'"prompt":[{"type":"text","text":"say \ud83d \ud83d\ude00 \\ud83d"}]}}',
    ]
    (tmp_path / "chain.yaml").write_text(COUNTED)

    run(
        *("run", "--otel", "chain.yaml"),
        input="\n".join(lines) + "\n",
        env=otel(receiver, OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT="true"),
    )

    (message,) = json.loads(
        receiver.named("invoke_agent test-agent").attributes["gen_ai.input.messages"]
    )
    assert message["parts"][0]["content"] == r"say ? 😀 \ud83d"


def test_without_a_sample_nothing_is_sent_and_the_flag_says_so(run, tmp_path, receiver):
    run(
        *("prompt", "--otel", "--trace", "t.jsonl", HELLO, "say hello"),
        env=otel(receiver, OTEL_TRACES_SAMPLER="always_off"),
    )

    assert receiver.spans == []
    flags = re.findall(r'-([0-9a-f]{2})","tracestate"', (tmp_path / "t.jsonl").read_text())
    assert {int(each, 16) & 1 for each in flags} == {0}


def test_without_otel_none_of_its_modules_is_imported(tmp_path):
    command = [sys.executable, "-X", "importtime", "-m", "conductor"]
    result = subprocess.run(
        [*command, "prompt", str(HELLO), "say hello"], capture_output=True, text=True, cwd=tmp_path
    )

    imported = {line.rpartition("|")[2].strip() for line in result.stderr.splitlines()}
    assert "conductor.tracing.recorder" in imported
    heavy = ("conductor.telemetry", "opentelemetry", "prometheus_client", "requests")
    assert [each for each in imported if each.startswith(heavy)] == []


def test_a_collector_that_cannot_be_reached_is_logged_once_and_ends_nothing(run):
    result = run(
        *("prompt", "--otel", HELLO, "say hello"),
        env={"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:9"},
    )

    assert (result.returncode, result.stdout) == (0, "hello\n")
    assert result.stderr.count("spans cannot be exported") == 1
    assert "OTEL_EXPORTER_OTLP_ENDPOINT" in result.stderr
    assert "Connection refused" in result.stderr


@pytest.mark.parametrize(
    "setting", ["OTEL_EXPORTER_OTLP_PROTOCOL=grpc", "OTEL_TRACES_EXPORTER=zipkin"]
)
def test_a_setting_that_cannot_be_followed_is_a_usage_error(run, setting):
    result = run("run", "--otel", HELLO, env=dict([setting.split("=")]))

    assert result.returncode == 2
    assert f"--otel: {setting}" in result.stderr


@pytest.mark.parametrize("setting", ["OTEL_SDK_DISABLED=true", "OTEL_TRACES_EXPORTER=none"])
def test_it_can_be_switched_off(run, receiver, setting):
    result = run(
        *("prompt", "--otel", HELLO, "say hello"), env=otel(receiver) | dict([setting.split("=")])
    )

    assert result.stdout == "hello\n"
    assert receiver.headers == []
