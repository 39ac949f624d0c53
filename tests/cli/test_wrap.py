"""`acp-conductor wrap`: a chain in front of an agent's command."""

from __future__ import annotations

import json
import sys

import pytest
from support.raw_json import compact

from cli.conftest import AGENT

pytestmark = pytest.mark.slow

INITIALIZE = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {"protocolVersion": 1}}
INPUT = compact(INITIALIZE) + "\n"


def result(done):
    return json.loads(done.stdout.splitlines()[0])["result"]


@pytest.mark.parametrize("options", [[], ["--on-start-failure", "error"]], ids=["early", "click"])
def test_the_proxies_of_a_chain_file_are_before_the_command(run, chain_file, options):
    path = chain_file("proxies: [{use: usage}]\nagent: {run: no-such-agent}\n")

    done = run("wrap", "--chain", path, *options, "--", *AGENT.split(), input=INPUT)

    assert result(done)["agentInfo"]["name"] == "test-agent"
    assert result(done)["_meta"]["acp-conductor/handled"] == ["usage"]
    assert done.returncode == 0


def test_arguments_and_environment_reach_the_agent(run, tmp_path):
    script = "import json, os, sys; json.dump([sys.argv[1:], os.environ['KEY']], open('seen', 'w'))"

    run(
        *("wrap", "--use", "usage", "--", sys.executable, "-c", script, "--acp", "--use", "x"),
        input=INPUT,
        env={"KEY": "k-1"},
    )

    assert json.loads((tmp_path / "seen").read_text()) == [["--acp", "--use", "x"], "k-1"]


def test_a_wrong_chain_file_is_explained_and_read_again(run, chain_file):
    path = chain_file("proxies: [{use: usage, start_timeout: nonsense}]\n")

    done = run("wrap", "--chain", path, "--", *AGENT.split(), input=INPUT)

    assert result(done)["agentInfo"]["name"] == "acp-conductor"
    assert "found `nonsense`" in done.stderr
    assert done.returncode == 2


def test_a_wrong_option_of_a_proxy_is_explained_with_its_place(run):
    done = run("wrap", "--use", "context:{fles: [a]}", "--", *AGENT.split(), input=INPUT)

    assert result(done)["agentInfo"]["name"] == "acp-conductor"
    assert "--use context:1:2: error: context: unknown option `fles`" in done.stderr
