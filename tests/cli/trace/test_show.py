"""`acp-conductor trace show`: in this process, and as a user runs it."""

from __future__ import annotations

import re
import signal
import subprocess
from contextlib import suppress

import pytest
from click.testing import CliRunner
from support.peers.process import ROOT
from support.raw_json import compact
from support.trace_records import TraceScript

from cli.conftest import COMMAND, PATIENCE
from conductor.cli.terminal_text import cell_width
from conductor.cli.trace.command import command
from conductor.cli.trace.lines import TraceLines
from conductor.cli.trace.reading import followed_records
from conductor.tracing.record_filter import RecordFilter

PROMPT = {"sessionId": "s", "prompt": [{"type": "text", "text": "hi"}]}


def show(path, *options):
    result = CliRunner().invoke(command, ["show", str(path), *options])
    assert result.exit_code == 0, result.output
    return [line.rstrip() for line in result.output.splitlines()]


def test_a_message_is_a_line_in_columns(tmp_path):
    script = TraceScript()
    request = script.request("client>notes", "session/prompt", PROMPT)
    script.update("agent>notes", "hello")
    script.answer(request, {"stopReason": "end_turn"})
    script.answer(request, {"code": -32603, "message": "broken"}, is_error=True)

    assert show(script.write(tmp_path / "t.jsonl")) == [
        "demo: client, notes, agent",
        '    0.250      1  client → notes       56 B           session/prompt  "hi"',
        '    0.500      2  notes ← agent       107 B           agent_message_chunk  "hello"',
        "    0.750      3  client ← notes       25 B    0.5 s  "
        'answer to session/prompt #1  {"stopReason": "end_turn"}',
        "    1.000      4  client ← notes       34 B   0.75 s  "
        "error of session/prompt #1  -32603 broken",
    ]


def test_handlers_logs_and_stderr_are_shown_on_request(tmp_path):
    script = TraceScript()
    n = script.request("client>notes", "session/prompt", PROMPT)
    script.handler("notes", n, method="session/prompt", handler="/notes.py:7", took=0.002)
    script.log("info", "permission decided", component="notes", message=n, fields={"rule": "r 1"})
    script.log("warning", "slow", component="agent")
    script.stderr("agent", "ready")
    path = script.write(tmp_path / "t.jsonl")

    by_default = [line.split(maxsplit=1)[1] for line in show(path, "--component", "agent")[1:]]
    texts = [re.sub(r" +", " ", line[11:]).strip() for line in show(path, "--all")[2:]]

    assert by_default == ["agent                               warning: slow"]
    assert texts == [
        "notes forwarded session/prompt #1 took 2 ms, waited 0 ms /notes.py:7",
        'notes info: permission decided rule="r 1" #1',
        "agent warning: slow",
        "agent stderr: ready",
    ]


def test_an_update_of_a_tool_call_has_its_title():
    script = TraceScript()
    for update in ({"title": "Read a file"}, {"status": "completed"}):
        change = {"sessionUpdate": "tool_call_update", "toolCallId": "t1", **update}
        script.notify("agent>notes", "session/update", {"sessionId": "s", "update": change})
    lines = TraceLines()

    *_, last = [lines.format(each) for each in script.records]

    assert last.endswith('tool_call_update  t1 completed  ("Read a file")')


def test_control_characters_of_peers_are_not_written(tmp_path):
    hostile = "\x1b]0;owned\x07\u202e\x9b31m\r\n"
    script = TraceScript()
    script.notify("agent>notes", hostile, {"text": hostile})
    script.notify("agent>notes", "session/update", {"update": {"sessionUpdate": hostile}})
    script.stderr("agent", hostile)
    script.log("error", hostile, component=hostile, fields={hostile: hostile})
    script.handler(hostile, 1, handler=hostile, method=hostile)
    lines = TraceLines(coloured=False)

    assert all(lines.format(each).isprintable() for each in script.records)


def test_lines_are_cut_for_a_terminal():
    script = TraceScript()
    script.update("agent>notes", "long " * 100)
    lines = TraceLines(width=80)

    assert [len(lines.format(each)) for each in script.records[1:]] == [80]


def test_a_cut_update_has_its_kind():
    script = TraceScript()
    head = '{"sessionId":"s","update":{"sessionUpdate":"tool_call","title":"Rea'
    script.notify("agent>notes", "session/update", head=head)
    lines = TraceLines(width=160)

    assert f"  tool_call  {head}" in lines.format(script.records[1])
    assert RecordFilter(methods=("tool_*",)).accepts(script.records[1])


def test_wide_characters_count_twice_where_a_line_is_cut():
    script = TraceScript()
    script.update("agent>notes", "日本語" * 40)
    lines = TraceLines(width=80)

    assert [cell_width(lines.format(each)) for each in script.records[1:]] == [80]


def test_a_file_that_is_no_trace_is_a_usage_error_with_its_line(run, tmp_path):
    (tmp_path / "t.jsonl").write_text("no\n")

    result = run("trace", "show", "t.jsonl")
    missing = run("trace", "show", "missing.jsonl")

    assert (result.returncode, missing.returncode) == (2, 2)
    assert "t.jsonl:1: not a record of a trace" in result.stderr
    assert "missing.jsonl: No such file or directory" in missing.stderr


def test_what_comes_before_a_broken_line_is_shown(tmp_path):
    script = TraceScript()
    script.update("agent>notes", "first")
    path = script.write(tmp_path / "t.jsonl")
    path.write_bytes(path.read_bytes() + b"no\n")

    result = CliRunner().invoke(command, ["show", str(path)])

    assert result.exit_code == 2
    assert 'agent_message_chunk  "first"' in result.stdout
    assert "t.jsonl:3: not a record of a trace" in result.stderr


def test_a_real_trace_is_shown_in_colours_on_a_terminal_and_plain_in_a_pipe(
    run, terminal, tmp_path
):
    run("prompt", "--trace", "t.jsonl", ROOT / "chains" / "hello.yaml", "say hello")

    plain = run("trace", "show", "t.jsonl", "--hop", "0", "--from", "usage").stdout
    shown = terminal("trace", "show", "t.jsonl", env={"TERM": "xterm-256color"})
    shown.wait_for("answer to session/prom")

    assert "\x1b" not in plain
    assert "client ← usage" in plain
    assert 'agent_message_chunk  "hello"' in plain
    assert "\x1b[34manswer to session/prom" in shown.seen
    assert shown.exit_code() == 0


def test_size_and_duration_share_a_column_on_a_narrow_terminal():
    script = TraceScript()
    script.answer(script.request("client>notes", "session/prompt", PROMPT), {})
    lines = TraceLines(width=80)

    shown = [lines.format(each) for each in script.records[1:]]

    assert [line[34:43].strip() for line in shown] == ["56 B", "0.25 s"]


def test_follow_shows_what_is_added_until_a_signal(tmp_path):
    script = TraceScript()
    script.update("agent>notes", "first")
    path = script.write(tmp_path / "t.jsonl")
    process = subprocess.Popen(
        [*COMMAND, "trace", "show", "--follow", str(path)], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None

    seen = [process.stdout.readline(), process.stdout.readline()]
    script.update("agent>notes", "second")
    script.write(tmp_path / "second")
    with path.open("ab") as file:
        file.write((tmp_path / "second").read_bytes().splitlines(keepends=True)[-1])
    seen.append(process.stdout.readline())
    process.send_signal(signal.SIGINT)

    assert process.wait(PATIENCE) == 130
    process.stdout.close()
    assert ['"first"' in seen[1], '"second"' in seen[2]] == [True, True]


def test_follow_waits_for_a_file_and_goes_on_in_the_one_that_gets_its_name(tmp_path):
    path, texts = tmp_path / "t.jsonl", []

    def add(text):
        line = compact({"type": "stderr", "ts": 0, "component": "notes", "text": text}) + "\n"
        with path.open("a") as file:
            file.write(line)

    def rename():
        add("two")
        path.rename(tmp_path / "t.jsonl.1")

    actions = [lambda: None, lambda: add("one"), rename, lambda: add("three")]
    with suppress(IndexError):  # after the last action
        for each in followed_records(str(path), lambda: actions.pop(0)()):
            texts.append(each.text)  # noqa: PERF401: the reading does not end

    assert texts == ["one", "two", "three"]


@pytest.mark.parametrize("name", ["shwo", "sho"])
def test_a_misspelt_subcommand_is_answered_with_the_right_one(run, name):
    assert "Did you mean 'show'?" in run("trace", name).stderr


def test_that_no_record_meets_the_criteria_is_told(tmp_path):
    script = TraceScript()
    script.update("agent>notes", "hello")
    path = script.write(tmp_path / "t.jsonl")

    for criteria in (["--component", "other"], ["--chain", "other"], ["--session", "other"]):
        result = CliRunner().invoke(command, ["show", str(path), *criteria])
        assert (result.exit_code, result.stderr) == (0, "no record meets the criteria\n")
    assert CliRunner().invoke(command, ["show", str(path)]).stderr == ""
