"""`acp-conductor trace check`."""

from __future__ import annotations

import pytest
from click.testing import CliRunner
from support.peers.process import ROOT
from support.trace_records import TraceScript

from conductor.cli.trace.command import command
from conductor.testing import Recording


def check(path):
    result = CliRunner().invoke(command, ["check", str(path)])
    return result.exit_code, result.output.splitlines()


def checked(tmp_path, script):
    return check(script.write(tmp_path / "t.jsonl"))


@pytest.mark.parametrize("name", Recording.names())
def test_messages_of_real_agents_fit(name):
    code, lines = check(ROOT / "conductor" / "testing" / "recordings" / f"{name}.jsonl")

    assert (code, len(lines)) == (0, 1), lines


def test_a_misfit_is_told_once_with_its_place_and_where_it_was_sent(tmp_path):
    script = TraceScript()
    update = {"sessionUpdate": "agent_message_chunk", "content": {"type": "text", "text": 1}}
    for hop in ("agent>notes", "notes>client"):
        script.notify(hop, "session/update", {"sessionId": "s", "update": update})

    code, lines = checked(tmp_path, script)

    assert code == 1
    assert lines[0].startswith("#1  0.250  notes ← agent  agent_message_chunk")
    assert lines[1:] == [
        "    update.content.text: expected string, got a number",
        "2 records checked, 0 not; 1 misfits",
    ]


def test_methods_and_senders_are_those_of_the_schema(tmp_path):
    script = TraceScript("client", "agent")
    script.request("client>agent", "session/promt", {})
    script.request("agent>client", "session/new", {"cwd": "/", "mcpServers": []})
    script.notify("client>agent", "session/list", {})
    script.request("client>agent", "_mine/method", [])

    code, lines = checked(tmp_path, script)

    assert code == 1
    assert [each.strip() for each in lines[1::2]] == [
        "not a method of ACP version 1",
        "sent toward the client; only the client sends it",
        "sent as a notification; it is a request",
    ]
    assert lines[-1] == "3 records checked, 1 not; 3 misfits"


def test_each_hop_is_checked_in_its_own_version_and_mcp_in_none(tmp_path):
    script = TraceScript()
    for hop, version in (("client>notes", 1), ("notes>agent", 2)):
        params = {"protocolVersion": version, "info": {"name": "a", "version": "1"}}
        asked = script.request(hop, "initialize", params, cause=0)
        script.answer(asked, {"protocolVersion": version, "info": {"name": "a", "version": "1"}})
    inner = script.request("agent>notes", "initialize", {"protocolVersion": 9}, protocol_="mcp")
    script.answer(inner, {"protocolVersion": 9})
    for hop in ("client>notes", "notes>agent"):
        script.request(hop, "session/set_mode", {"sessionId": "s", "modeId": "m"})

    code, lines = checked(tmp_path, script)
    assert code == 1, lines

    assert lines[1:] == ["    not a method of ACP version 2", "6 records checked, 2 not; 1 misfits"]


def test_payloads_that_are_not_in_the_trace_are_not_checked(tmp_path):
    script = TraceScript("client", "agent")
    script.notify("agent>client", "session/update", None, size=300, head='{"sessionId"')
    answered = script.request("client>agent", "session/new", {"cwd": "/", "mcpServers": []})
    script.answer(answered, {"code": -32603}, is_error=True)

    assert checked(tmp_path, script) == (
        1,
        [
            '#3  0.750  client ← agent  error of session/new #2  {"code": -32603}',
            "    message: expected string, got nothing",
            "2 records checked, 1 not; 1 misfits",
        ],
    )
