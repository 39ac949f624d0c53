"""`acp-conductor trace why`."""

from __future__ import annotations

import sys

import pytest
from click.testing import CliRunner
from support.trace_records import TraceScript

from cli.conftest import PASS_PROXY
from conductor.cli.trace.command import command
from conductor.tracing.reader import Trace
from conductor.tracing.records import RequestRecord

ADDER = """
from conductor.proxy import Proxy, tool

class Adder(Proxy):
    @tool
    async def add(self, a: int, b: int) -> str:
        return str(a + b)
"""
PROMPT = {"sessionId": "s", "prompt": [{"type": "text", "text": "hi"}]}
CHANGED = {"sessionId": "s", "prompt": [{"type": "text", "text": "hi"}, {"type": "x"}]}


def why(path, number):
    result = CliRunner().invoke(command, ["why", str(path), str(number)])
    assert result.exit_code == 0, result.output
    return result.output.splitlines()


def test_every_hop_of_a_request_and_of_its_answer_is_shown(tmp_path):
    script = TraceScript()
    first = script.request("client>notes", "session/prompt", PROMPT)
    script.log("info", "permission decided", component="notes", message=first, fields={"rule": 2})
    second = script.request("notes>agent", "session/prompt", CHANGED)
    script.update("agent>notes", "hello", cause=second)
    script.answer(second, {"stopReason": "end_turn"})
    script.answer(first, {"stopReason": "end_turn"})
    script.handler(
        "notes", first, handler="/notes.py:7", waited=0.001, took=1.0, outcome="forwarded"
    )
    path = script.write(tmp_path / "t.jsonl")

    lines = why(path, 2)

    assert lines == [
        'session/prompt  "hi"',
        "  #1  0.250  client → notes  56 B",
        "    notes: handler /notes.py:7 forwarded it; waited 1 ms for its lane, took 1 s",
        "    notes: info: permission decided rule=2",
        "    notes: passed on after 0.5 s, changed  "
        "(link inferred: same method and session, in order)",
        '      + prompt[1]: {"type": "x"}',
        "  #2  0.750  notes → agent  69 B",
        '    agent: sent #3 agent_message_chunk  "hello"',
        "    agent: its answer is #4, after 0.5 s",
        "",
        'answer to session/prompt #2  {"stopReason": "end_turn"}',
        "  #4  1.250  notes ← agent  25 B  0.5 s after the request",
        "    notes: passed on after 0.25 s, unchanged  (link inferred: through its request)",
        "  #5  1.500  client ← notes  25 B  1.25 s after the request",
    ]
    assert why(path, "#1") == lines


def test_a_component_that_was_inserted_for_the_message_is_named(tmp_path):
    script = TraceScript("client", "agent")
    first = script.request("client>agent", "session/new")
    second = script.request("client>bridge", "session/new", cause=first)
    script.request("bridge>agent", "session/new", cause=second)
    path = script.write(tmp_path / "t.jsonl")

    assert why(path, 3)[1:6] == [
        "  #1  0.250  client → agent",
        "    bridge was inserted for it, and gets it instead",
        "  #2  0.500  client → bridge",
        "    bridge: passed on after 0.25 s, unchanged",
        "  #3  0.750  bridge → agent",
    ]


def test_who_did_not_pass_a_message_on_is_said(tmp_path):
    script = TraceScript()
    prompt = script.request("client>notes", "session/prompt", PROMPT)
    update = script.update("agent>notes", "secret")
    path = script.write(tmp_path / "t.jsonl")

    assert why(path, update)[-1] == "    notes: it was not passed on"
    assert why(path, prompt)[-1] == "no answer in this trace: notes got it last (#1)"


def test_an_error_of_a_component_is_its_own_answer(tmp_path):
    script = TraceScript()
    prompt = script.request("client>notes", "session/prompt", PROMPT)
    script.answer(prompt, {"code": -32603, "message": "no rule"}, is_error=True)

    lines = why(script.write(tmp_path / "t.jsonl"), prompt)

    assert "    notes: an error is #2, after 0.25 s" in lines
    assert "error of session/prompt #1  -32603 no rule" in lines


def test_what_a_message_was_sent_for_is_named(tmp_path):
    script = TraceScript()
    prompt = script.request("client>notes", "session/prompt", PROMPT)
    update = script.update("notes>client", "own", cause=prompt)

    lines = why(script.write(tmp_path / "t.jsonl"), update)

    assert lines[1] == '  sent by notes while it handled #1 session/prompt  "hi"'


def test_changes_without_payloads_are_sizes(tmp_path):
    script = TraceScript()
    first = script.notify("client>notes", "m", None, size=700)
    script.notify("notes>agent", "m", None, size=900, cause=first)

    lines = why(script.write(tmp_path / "t.jsonl"), first)

    assert "      700 B, then 900 B; the payload is not in the trace" in lines


def test_a_record_of_several_messages_is_not_shown_as_a_change(tmp_path):
    script = TraceScript()
    script.update("agent>notes", "one", count=6)
    script.update("notes>client", "one")

    shown = "\n".join(why(script.write(tmp_path / "t.jsonl"), 2))

    assert "after 0.25 s, in a record that stands for 6 messages" in shown
    assert "changed" not in shown


def test_a_number_that_no_message_has_is_a_usage_error(tmp_path):
    script = TraceScript()
    script.update("agent>notes", "x")
    path = script.write(tmp_path / "t.jsonl")

    result = CliRunner().invoke(command, ["why", str(path), "7"])

    assert result.exit_code == 2
    assert "has no message '7'; its messages: 1 to 1" in result.output


def test_control_characters_of_peers_are_not_written(tmp_path):
    hostile = "\x1b]0;owned\x07\u202e\n"
    script = TraceScript()
    first = script.request("client>notes", hostile, {"text": hostile})
    script.log("info", hostile, component=hostile, message=first, fields={hostile: hostile})
    script.handler("notes", first, handler=hostile, method=hostile)
    second = script.request("notes>agent", hostile, {"text": hostile + "x", hostile: 1})
    script.answer(second, {"code": 1, "message": hostile}, is_error=True)

    assert all(line.isprintable() for line in why(script.write(tmp_path / "t.jsonl"), 1))


def test_links_of_a_real_process_are_inferred(run, chain_file, tmp_path):
    chain = chain_file(
        f"proxies:\n  - name: passer\n    run: [{sys.executable}, {PASS_PROXY}]\n"
        "agent:\n  use: test-agent\n"
    )
    run("prompt", "--trace", "t.jsonl", chain, "say hello")
    shown = run("trace", "show", "t.jsonl", "--method", "session/prompt").stdout
    number = shown.splitlines()[1].split()[1]

    text = run("trace", "why", "t.jsonl", number).stdout

    assert "unchanged  (link inferred: equal payload)" in text
    assert "(link inferred: through its request)" in text


@pytest.mark.slow
def test_a_tool_call_over_a_bridge_does_not_come_from_the_set_up_of_a_session(run, tmp_path):
    (tmp_path / "adder.py").write_text(ADDER)
    agent = f"run: [{sys.executable}, -m, conductor.testing.agent]"
    chain = f"version: 1\nproxies:\n  - use: ./adder.py:Adder\nagent:\n  {agent}\n"
    (tmp_path / "chain.yaml").write_text(chain)
    run("prompt", "--trace", "t.jsonl", "chain.yaml", 'call Adder add {"a": 1, "b": 2}')

    (call,) = (
        each
        for each in Trace.load(tmp_path / "t.jsonl").messages
        if isinstance(each, RequestRecord) and each.method == "tools/call"
    )
    assert (call.sender, call.cause) == ("mcp-bridge", None)


def test_who_cancelled_a_request_is_said(tmp_path):
    script = TraceScript()
    first = script.request("client>notes", "session/prompt", PROMPT)
    second = script.request("notes>agent", "session/prompt", PROMPT)
    cancellations = script.cancel(first), script.cancel(second)
    path = script.write(tmp_path / "t.jsonl")

    assert "    client: cancelled it after 0.5 s (#3)" in why(path, first)
    assert "    notes: cancelled it after 0.5 s (#4)" in why(path, first)
    assert why(path, cancellations[1]) == [
        "$/cancel_request #1",
        "  #3  0.750  client → notes  15 B",
        "    notes: passed on after 0.25 s, unchanged  (link inferred: through its request)",
        "  #4  1.000  notes → agent  15 B",
        "",
        "the request: acp-conductor trace why FILE 2",
    ]


def test_a_message_that_a_component_made_without_a_cause_is_said_to_be_so(tmp_path):
    script = TraceScript()
    made = script.update("notes>client", "a note")
    path = script.write(tmp_path / "t.jsonl")

    assert why(path, made)[1] == ("  made by notes: none of the messages that it got is its cause")


@pytest.mark.slow
def test_an_mcp_call_of_the_agent_is_said_to_be_one(tmp_path):
    script = TraceScript("client", "notes", "mcp-bridge", "agent")
    script.request("mcp-bridge>notes", "tools/call", {"name": "add"}, protocol_="mcp")

    text = why(script.write(tmp_path / "t.jsonl"), 1)

    assert text[1] == "  sent by mcp-bridge for an MCP connection of the agent"


def test_a_turn_that_stalls_says_so(run, tmp_path):
    (tmp_path / "chain.yaml").write_text(
        "version: 1\nagent:\n  name: agent\n  stall_timeout: 200ms\n"
        f"  run: [{sys.executable}, -m, conductor.testing.agent]\n"
    )
    run("prompt", "--trace", "t.jsonl", "chain.yaml", "wait 0.6")

    stalled = "    agent: warning: prompt turn stalled method=session/prompt"
    trace = Trace.load(tmp_path / "t.jsonl")
    (asked,) = (
        each.n
        for each in trace.messages
        if isinstance(each, RequestRecord) and each.method == "session/prompt"
    )
    assert stalled in run("trace", "why", "t.jsonl", str(asked)).stdout
