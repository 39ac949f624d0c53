"""`acp-conductor trace show --stats`."""

from __future__ import annotations

import re

from click.testing import CliRunner
from support.peers.process import ROOT
from support.trace_records import TraceScript

from conductor.cli.trace.command import command
from conductor.cli.trace.statistics import statistics_lines
from conductor.tracing.records import LossRecord


def stats(path, *options):
    result = CliRunner().invoke(command, ["show", "--stats", str(path), *options])
    assert result.exit_code == 0, result.output
    return result.output.splitlines()


def prompt_turns(*costs):
    script = TraceScript("client", "agent")
    for number, cost in enumerate(costs, 1):
        text = {"type": "text", "text": f"question {number}"}
        params = {"sessionId": "s", "prompt": [text]}
        request = script.request("client>agent", "session/prompt", params)
        update = {"sessionUpdate": "usage_update", "used": 900, "size": 2000}
        update["cost"] = {"amount": cost, "currency": "USD"}
        script.notify("agent>client", "session/update", {"sessionId": "s", "update": update})
        usage = {"totalTokens": 1500, "inputTokens": 1000, "outputTokens": 500}
        script.answer(request, {"stopReason": "end_turn", "usage": usage}, session="s")
    return script


def test_tokens_and_cost_are_summed_by_session(tmp_path):
    lines = stats(prompt_turns(0.5, 0.75).write(tmp_path / "t.jsonl"))

    assert lines[-2:] == [
        "session  turns  tokens     in    out       context        cost",
        "s            2   3,000  2,000  1,000  900 of 2,000  0.7500 USD",
    ]


def test_tokens_of_version_2_are_those_of_the_state_that_ends_a_turn(tmp_path):
    script = TraceScript("client", "agent")
    state = {"sessionUpdate": "state_update", "state": "idle", "stopReason": "end_turn"}
    for total in (15, 20):
        prompt = script.request("client>agent", "session/prompt", {"sessionId": "s", "prompt": []})
        script.answer(prompt, {"messageId": "m"}, session="s")
        update = {**state, "usage": {"totalTokens": total}}
        script.notify("agent>client", "session/update", {"sessionId": "s", "update": update})

    assert stats(script.write(tmp_path / "t.jsonl"))[-1].split() == ["s", "2", "35"]


def test_the_slowest_turns_are_first_and_the_rest_is_counted(tmp_path):
    script = prompt_turns(1, 2)
    script.records[-1].elapsed = 9.0
    lines = stats(script.write(tmp_path / "t.jsonl"), "--top", "1")

    head = next(at for at, line in enumerate(lines) if line.startswith("slowest turns"))
    assert lines[head + 1 : head + 3] == [
        '#4 s  "question 2"   9 s        1      0  end_turn',
        "and 1 more (--top)",
    ]


def test_hostile_values_are_shown_in_one_line(tmp_path):
    hostile = "\x1b]0;owned\x07\u202e\n"
    script = TraceScript("client", "agent")
    params = {"sessionId": hostile, "prompt": hostile}
    request = script.request("client>agent", "session/prompt", params)
    update = {"sessionUpdate": "usage_update", "used": hostile, "size": [], "cost": hostile}
    script.notify("agent>client", "session/update", {"sessionId": hostile, "update": update})
    script.notify("agent>client", hostile, {"update": hostile})
    payload = {"stopReason": hostile, "usage": {"totalTokens": hostile, hostile: 1}}
    script.answer(request, payload)
    script.handler(hostile, request, handler=hostile)

    assert all(line.isprintable() for line in stats(script.write(tmp_path / "t.jsonl")))


def test_a_real_trace_has_all_tables(run):
    run("prompt", "--trace", "t.jsonl", ROOT / "chains" / "hello.yaml", "say hello")

    text = run("trace", "show", "--stats", "t.jsonl").stdout

    heads = re.findall(
        r"^(hop|time in component|method|handler|slowest turns)\b", text, re.MULTILINE
    )
    assert heads == ["hop", "time in component", "method", "handler", "slowest turns"]
    assert "client, usage" in text


def test_tables_fit_a_terminal_and_one_error_is_an_error(tmp_path):
    script = prompt_turns(1)
    script.answer(1, {"code": -32603, "message": "failed"}, is_error=True)
    script.handler("agent", 1, handler="/a/long/path/" + "of/packages/" * 9 + "notes.py:7")
    total, *tables = [text for text, _ in statistics_lines(script.records, 10, 80)]

    assert ", 1 error; " in total
    assert max(map(len, tables)) <= 80
    assert any(line.startswith("agent /") and "/notes.py:7 " in line for line in tables)


PROMPT = {"sessionId": "s", "prompt": [{"type": "text", "text": "hi"}]}


def tables(script):
    """The cells of each row of the report, by the head of its table."""
    found = {}
    for text, is_heading in statistics_lines(script.records, 10):
        cells = re.split(r"  +", text)
        if is_heading:
            found[cells[0]] = rows = []
        elif text and found:
            rows.append(cells)
    return found


def test_durations_of_hops_methods_components_and_handlers():
    script = TraceScript()
    first = script.request("client>notes", "session/prompt", PROMPT)  # 0.25 s
    second = script.request("notes>agent", "session/prompt", PROMPT)  # 0.5
    script.update("agent>notes", "hello")
    script.update("notes>client", "hello")  # 1.0
    script.answer(second, {"stopReason": "end_turn"}, session="s")
    script.answer(first, {"stopReason": "end_turn"}, session="s")  # 1.5
    script.handler("notes", first, handler="/notes.py:7", took=0.5)
    other = script.request("client>notes", "session/load", {"sessionId": "s"})
    script.answer(other, {"code": 1, "message": "no"}, is_error=True)  # 2.25
    script.records.append(LossRecord(ts=0.1, count=2))
    script.update("notes>client", "longest")

    found = tables(script)

    lines = [text for text, _ in statistics_lines(script.records, 10)]
    assert lines[0].startswith("6 messages in 2.5 s, 1 error; on all hops 9, ")
    assert lines[1] == "2 records are missing: they came too fast to be written"
    assert [[name, n, *times] for name, n, _, *times in found["hop"]] == [
        ["client, notes", "6", "0.25 s", "1.25 s", "1.25 s", "1.25 s"],
        ["notes, agent", "3", *["0.75 s"] * 4],
    ]
    assert [[row[0], *row[3:4]] for row in found["method"]] == [
        ["session/prompt", "1.25 s"],
        ["session/load", "0.25 s"],
        ["agent_message_chunk"],
    ]
    assert [[*row[:2], row[-1]] for row in found["time in component"]] == [["notes", "3", "0.25 s"]]
    assert [[row[0], row[-1]] for row in found["handler"]] == [["notes /notes.py:7", "0.5 s"]]
    assert found["slowest turns"] == [["#1 s", '"hi"', "1.25 s", "1", "0", "end_turn"]]


def test_a_turn_of_version_2_lasts_until_its_work_has_ended():
    script = TraceScript("client", "agent")

    def state(name, **more):
        update = {"sessionUpdate": "state_update", "state": name, **more}
        script.notify("agent>client", "session/update", {"sessionId": "s", "update": update})

    state("running")  # 0.25 s
    state("idle")
    prompt = script.request("client>agent", "session/prompt", PROMPT)  # 0.75
    script.answer(prompt, {"messageId": "m"}, session="s")  # 1.0
    state("idle", stopReason="end_turn", background=[{"id": "b"}])
    state("running")  # 1.5
    script.update("agent>client", "hello")
    state("idle", stopReason="refusal")  # 2.0
    script.answer(
        script.request("client>agent", "session/prompt", PROMPT), {"code": 1}, is_error=True
    )
    state("running")
    state("idle", stopReason="end_turn")

    assert tables(script)["slowest turns"] == [
        ["#3 s", '"hi"', "1.25 s", "4", "0", "refusal"],
        ["#9 s", '"hi"', "0.25 s", "0", "0", "error"],
    ]


def test_the_wait_for_an_inserted_component_is_not_time_in_the_sender():
    script = TraceScript("client", "agent")
    first = script.request("client>agent", "session/new")
    second = script.request("client>bridge", "session/new", cause=first)
    script.request("bridge>agent", "session/new", cause=second)

    assert [row[0] for row in tables(script)["time in component"]] == ["bridge"]


def test_only_records_that_meet_the_criteria_are_counted(tmp_path):
    path = prompt_turns(1, 2).write(tmp_path / "t.jsonl")

    assert stats(path)[0].startswith("6 messages ")
    assert stats(path, "--method", "usage_update")[0].startswith("2 messages ")
    assert stats(path, "--session", "other") == ["0 messages in 0 ms, 0 errors; on all hops 0, 0 B"]
