"""`acp-conductor trace stats`."""

from __future__ import annotations

import re

from click.testing import CliRunner
from support.peers.process import ROOT
from support.trace_records import TraceScript

from conductor.cli.trace.command import command
from conductor.cli.trace.stats import statistics_lines
from conductor.tracing.reader import Trace
from conductor.tracing.statistics import statistics


def stats(path, *options):
    result = CliRunner().invoke(command, ["stats", str(path), *options])
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


def test_a_long_prompt_is_cut_with_an_ellipsis(tmp_path):
    script = TraceScript("client", "agent")
    text = {"type": "text", "text": "word " * 30}
    first = script.request("client>agent", "session/prompt", {"sessionId": "s", "prompt": [text]})
    script.answer(first, {"stopReason": "end_turn"})

    assert f'"{"word " * 11}wor…  ' in "\n".join(stats(script.write(tmp_path / "t.jsonl")))


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

    text = run("trace", "stats", "t.jsonl").stdout

    heads = re.findall(
        r"^(hop|time in component|method|handler|slowest turns)\b", text, re.MULTILINE
    )
    assert heads == ["hop", "time in component", "method", "handler", "slowest turns"]
    assert "client, usage" in text


def test_tables_fit_a_terminal_and_one_error_is_an_error(tmp_path):
    script = prompt_turns(1)
    script.answer(1, {"code": -32603, "message": "failed"}, is_error=True)
    script.handler("agent", 1, handler="/a/long/path/" + "of/packages/" * 9 + "notes.py:7")
    numbers = statistics(Trace.load(script.write(tmp_path / "t.jsonl")).records)

    total, *tables = [text for text, _ in statistics_lines(numbers, 10, 80)]

    assert ", 1 error; " in total
    assert max(map(len, tables)) <= 80
    assert any(line.startswith("agent /") and "/notes.py:7 " in line for line in tables)
