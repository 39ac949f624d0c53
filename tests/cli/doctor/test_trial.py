"""A chain and its MCP servers, tried for a limited time."""

from __future__ import annotations

import json
import os
import signal

import pytest
import trio

from conductor.chainfile import load
from conductor.cli.doctor.starts import start_findings
from conductor.cli.doctor.trial import gather_trial

SERVERS = "proxies: [{use: mcp_servers, with: {servers: %s}}]\nagent: {use: test-agent}\n"


def attempt(chain_file, text, limit):
    def leave():
        raise AssertionError("a plugin still runs")

    file = load(chain_file(text))

    def report(finding):
        raise AssertionError("a plugin blocks the event loop")

    return trio.run(gather_trial, file, [], leave, report, limit)


def problems(trial):
    return [
        (found.severity, found.check, found.message)
        for found in start_findings(trial.start)
        if found.severity != "ok"
    ]


def test_an_agent_that_does_not_answer_is_named_and_ended(chain_file, tmp_path):
    program = f"trap '' TERM; echo $$$$ > {tmp_path}/pid; while :; do sleep 100; done"

    trial = attempt(chain_file, f"agent: {{run: [sh, -c, {json.dumps(program)}]}}\n", 0.5)

    message = "the chain does not start within 0.5 s: sh has not answered"
    assert problems(trial) == [("error", "start", message)]
    with pytest.raises(ProcessLookupError):
        os.kill(int((tmp_path / "pid").read_text()), signal.SIGCONT)


@pytest.mark.slow
def test_a_session_that_waits_for_a_server_names_it(chain_file):
    servers = [{"name": "deaf", "command": ["sleep", "100"]}]

    trial = attempt(chain_file, SERVERS % json.dumps(servers), 1.5)

    assert problems(trial) == [("error", "session", "session/new has no answer within 1.5 s")]
    assert trial.start.waits_for == ["deaf"]
    assert [start.error for start in trial.servers] == ["it did not answer within 1.5 s"]


@pytest.mark.slow
def test_servers_are_started_at_the_same_time(chain_file, tmp_path):
    """Each of the two waits until the other one opens the pipe, too."""
    os.mkfifo(tmp_path / "pipe")
    writer = {"name": "writer", "command": ["sh", "-c", f": > {tmp_path}/pipe"]}
    reader = {"name": "reader", "command": ["sh", "-c", f": < {tmp_path}/pipe"]}

    trial = attempt(chain_file, SERVERS % json.dumps([writer, reader]), 3)

    assert [start.server.name for start in trial.servers] == ["writer", "reader"]
    assert [start.error for start in trial.servers] == ["Connection closed"] * 2


def test_a_component_that_a_condition_leaves_out_is_not_said_to_run(chain_file):
    text = "proxies: [{use: usage, when: {env: NO_SUCH_VARIABLE}}]\nagent: {use: test-agent}\n"

    assert attempt(chain_file, text, 10).start.components == ["test-agent"]
