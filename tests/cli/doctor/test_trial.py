"""A chain and its MCP servers, tried for a limited time."""

from __future__ import annotations

import json
import os
import signal

import pytest
import trio

from conductor.chainfile import load
from conductor.cli.doctor.starts import gather_starts, start_findings
from conductor.cli.trial import Trial

SERVERS = "proxies: [{use: mcp_servers, with: {servers: %s}}]\nagent: {use: test-agent}\n"


def attempt(chain_file, text, limit):
    """The trial, and the starts of the servers."""

    def report(finding):
        raise AssertionError("a plugin blocks the event loop")

    trial = Trial(load(chain_file(text)), limit=limit)
    return trial, trio.run(gather_starts, trial, report)


def problems(trial):
    return [
        (found.severity, found.check, found.message)
        for found in start_findings(trial)
        if found.severity != "ok"
    ]


def test_an_agent_that_does_not_answer_is_named_and_ended(chain_file, tmp_path):
    program = f"trap '' TERM; echo $$$$ > {tmp_path}/pid; while :; do sleep 100; done"

    trial, _ = attempt(chain_file, f"agent: {{run: [sh, -c, {json.dumps(program)}]}}\n", 0.5)

    message = "the chain does not start within 0.5 s: sh has not answered"
    assert problems(trial) == [("error", "start", message)]
    with pytest.raises(ProcessLookupError):
        os.kill(int((tmp_path / "pid").read_text()), signal.SIGCONT)


@pytest.mark.slow
def test_a_session_that_waits_for_a_server_names_it(chain_file):
    servers = [{"name": "deaf", "command": ["sleep", "100"]}]

    trial, servers = attempt(chain_file, SERVERS % json.dumps(servers), 1.5)

    assert problems(trial) == [("error", "session", "session/new has no answer within 1.5 s")]
    assert trial.waits_for == ["deaf"]
    assert [start.error for start in servers] == ["it did not answer within 1.5 s"]


@pytest.mark.slow
def test_servers_are_started_at_the_same_time(chain_file, tmp_path):
    """Each of the two waits until the other one opens the pipe, too."""
    os.mkfifo(tmp_path / "pipe")
    writer = {"name": "writer", "command": ["sh", "-c", f": > {tmp_path}/pipe"]}
    reader = {"name": "reader", "command": ["sh", "-c", f": < {tmp_path}/pipe"]}

    _, starts = attempt(chain_file, SERVERS % json.dumps([writer, reader]), 3)

    assert [start.server.name for start in starts] == ["writer", "reader"]
    assert [start.error for start in starts] == ["Connection closed"] * 2


def test_a_component_that_a_condition_leaves_out_is_not_said_to_run(chain_file):
    text = "proxies: [{use: usage, when: {env: NO_SUCH_VARIABLE}}]\nagent: {use: test-agent}\n"

    assert attempt(chain_file, text, 10)[0].components == ["test-agent"]
