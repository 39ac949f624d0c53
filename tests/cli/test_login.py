"""`acp-conductor login`, with the agent of `test_login_help`."""

from __future__ import annotations

import json
import sys

import pytest

from cli.test_login_help import LOGIN_AGENT


@pytest.fixture
def path(chain_file):
    agent = {"name": "it", "run": [*LOGIN_AGENT, "--acp"], "env": {"A": "base", "OWN": "own"}}
    return chain_file(f"proxies: [{{run: [no-such-proxy]}}]\nagent: {json.dumps(agent)}\n")


def test_without_a_method_they_are_listed(run, path):
    done = run("login", path)

    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines() == [
        "browser: Log in with a browser (Opens a page)",
        "tui: Log in here, in this terminal",
        "key: A key",
    ]


@pytest.mark.slow
def test_a_method_in_a_terminal_is_the_program_of_the_agent(terminal, path):
    shell = terminal("login", path, "tui")
    shell.wait_for("code? ")
    shell.type("1234\n")

    assert shell.exit_code() == 7
    assert f"alone {shell.pid} ['--acp', '--login'] True 'b c' 'own' " in shell.seen
    assert "read 1234\n" in shell.seen


def test_another_method_is_performed_by_the_agent(run, path):
    done = run("login", path, "browser")

    assert (done.returncode, done.stdout, done.stderr) == (0, "", "logged in\n")


def test_an_unknown_method_is_named_with_those_that_there_are(run, path):
    done = run("login", path, "nope")

    assert done.returncode == 2
    assert done.stderr == (
        "error: the agent offers no method 'nope'; it offers: browser, tui, key\n"
    )


def test_a_method_with_a_key_says_which_variable_is_missing(run, path):
    missing, given = run("login", path, "key"), run("login", path, "key", env={"THE_KEY": "k"})

    assert missing.returncode == 1
    assert missing.stderr.splitlines() == [
        f"error: set THE_KEY in `env:` of the agent, in {path}",
        "  see https://example.com/keys",
    ]
    assert (given.returncode, given.stderr) == (0, "logged in\n")


def test_an_agent_that_does_not_start_is_an_error(run, chain_file):
    done = run("login", chain_file("agent: {run: [sh, -c, exit 5], name: it}\n"))

    assert done.returncode == 3
    assert done.stderr.startswith("error: ")
    assert "exit" in done.stderr


WHOLE_COMMAND_AGENT = """
import json, sys

for line in sys.stdin:
    asked = json.loads(line)
    if not asked["params"]["clientCapabilities"]["_meta"]["terminal-auth"]:
        break
    command = {"command": "sh", "args": ["-c", "echo alone $OWN"], "label": "Log in"}
    method = {"id": "whole", "name": "Log in", "_meta": {"terminal-auth": command}}
    result = {"protocolVersion": 1, "authMethods": [method]}
    answer = {"jsonrpc": "2.0", "id": asked["id"], "result": result}
    print(json.dumps(answer, separators=(",", ":")), flush=True)
"""


def test_a_method_with_a_whole_command_runs_it_with_the_environment_of_the_agent(run, chain_file):
    """As that of opencode, which answers `authenticate` and does nothing."""
    agent = {"run": [sys.executable, "-S", "-c", WHOLE_COMMAND_AGENT], "env": {"OWN": "own"}}
    path = chain_file(f"agent: {json.dumps(agent)}\n")

    listed, done = run("login", path), run("login", path, "whole")

    assert listed.stdout == "whole: Log in, in this terminal\n"
    assert (done.returncode, done.stdout, done.stderr) == (0, "alone own\n", "")


REFUSING_AGENT = """
import json, sys

for line in sys.stdin:
    asked = json.loads(line)
    answer = {"result": {"protocolVersion": 1, "authMethods": [{"id": "key", "name": "A key"}]}}
    if asked["method"] == "authenticate":
        data = {"details": "no such key\\nsee \\x1b[1mthe site"}
        answer = {"error": {"code": -32603, "message": "Internal error", "data": data}}
    answer = {"jsonrpc": "2.0", "id": asked["id"], **answer}
    print(json.dumps(answer, separators=(",", ":")), flush=True)
"""


def test_a_failed_login_says_what_the_agent_says(run, chain_file):
    agent = {"run": [sys.executable, "-S", "-c", REFUSING_AGENT]}

    done = run("login", chain_file(f"agent: {json.dumps(agent)}\n"), "key")

    error, *details = done.stderr.splitlines()
    assert (done.returncode, error) == (1, "error: Internal error (-32603)")
    assert details[0] == "  no such key"
    assert details[1].startswith("  see ")
    assert "\x1b" not in details[1]
