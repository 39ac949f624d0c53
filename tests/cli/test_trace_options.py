"""`--trace` of the commands that run chains, in real processes."""

from __future__ import annotations

import json

import pytest
from support.peers.process import ROOT
from support.raw_json import compact

from conductor.tracing.reader import Trace
from conductor.tracing.records import RequestRecord

from .conftest import AGENT

HELLO = ROOT / "chains" / "hello.yaml"
INITIALIZE = {"jsonrpc": "2.0", "id": 7, "method": "initialize", "params": {"protocolVersion": 1}}


def requests(path):
    return [each for each in Trace.load(path).messages if isinstance(each, RequestRecord)]


@pytest.mark.parametrize(
    "command",
    [
        pytest.param(("run", HELLO), id="run"),
        pytest.param(("agent", AGENT), id="agent", marks=pytest.mark.slow),
    ],
)
def test_messages_of_an_editor_are_written(run, tmp_path, command):
    name, *words = command

    result = run(name, "--trace", "trace.jsonl", *words, input=compact(INITIALIZE) + "\n")

    assert json.loads(result.stdout)["id"] == 7
    first = requests(tmp_path / "trace.jsonl")[0]
    assert (first.sender, first.method, first.hop) == ("client", "initialize", 0)
    assert first.params == {"protocolVersion": 1}


def test_prompt_writes_a_trace_without_payloads(run, tmp_path):
    result = run("prompt", "--trace", "t.jsonl", "--trace-payloads", "none", HELLO, "say hello")

    assert result.stdout == "hello\n"
    methods = [each.method for each in requests(tmp_path / "t.jsonl") if each.hop == 0]
    assert methods == ["initialize", "session/new", "session/prompt"]
    assert "say hello" not in (tmp_path / "t.jsonl").read_text()


def test_a_file_that_cannot_be_written_is_a_usage_error(run):
    result = run("run", "--trace", "missing/trace.jsonl", HELLO)

    assert result.returncode == 2
    assert "--trace missing/trace.jsonl: No such file or directory" in result.stderr


def test_secrets_are_masked(run, tmp_path):
    secret = "hunter2-hunter2-hunter2"

    run("prompt", "--trace", "t.jsonl", HELLO, f"say {secret}", env={"MY_TOKEN": secret})

    assert secret not in (tmp_path / "t.jsonl").read_text()
    assert any(each.masked for each in requests(tmp_path / "t.jsonl"))
