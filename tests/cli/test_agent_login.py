"""A client's terminal login: the command of the chain, and the words from `initialize`."""

from __future__ import annotations

import json
import subprocess
import sys

import psutil
import pytest
from support.bridges_real_agents import from_npm
from support.raw_json import compact
from support.record_agents import PROGRAMS

from cli.conftest import COMMAND, PATIENCE, Terminal
from cli.test_login_help import LOGIN_AGENT

CAPABLE = {"protocolVersion": 1, "clientCapabilities": {"auth": {"terminal": True}}}
INITIALIZE = compact({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": CAPABLE})


@pytest.fixture
def path(chain_file):
    agent = {"run": [*LOGIN_AGENT, "--acp"], "env": {"A": "base", "OWN": "own"}, "cwd": "/usr"}
    return chain_file(f"proxies: [{{use: usage}}]\nagent: {json.dumps(agent)}\n")


def terminal_method(run, *command):
    """The method of type `terminal` that a client of this command gets."""
    done = run(*command, input=f"{INITIALIZE}\n")
    methods = json.loads(done.stdout.splitlines()[0])["result"]["authMethods"]
    return next((each for each in methods if each.get("type") == "terminal"), None)


def terminal_login(path, cwd):
    """The login in a terminal, as a client of this chain file starts it and the user ends it."""
    command = [*COMMAND, "run", str(path)]
    done = subprocess.run(command, input=f"{INITIALIZE}\n", capture_output=True, text=True)
    methods = json.loads(done.stdout.splitlines()[0])["result"]["authMethods"]
    (method,) = [each for each in methods if each.get("type") == "terminal"]
    shell = Terminal(["run", path, *method["args"]], cwd, method.get("env", {}))
    shell.wait_for("code? ")
    shell.type("1234\n")
    return shell


@pytest.mark.slow
def test_the_client_reaches_the_agent_of_a_file_with_its_environment_and_directory(
    run, terminal, path
):
    command = ("--log", "error", "run", path)
    method = terminal_method(run, *command)

    shell = terminal(*command, *method["args"], env=method["env"])
    shell.wait_for("code? ")
    shell.type("1234\n")

    assert shell.exit_code() == 7
    assert f"alone {shell.pid} ['--acp', '--login'] True 'b c' 'own' /usr\n" in shell.seen
    assert "read 1234\n" in shell.seen


@pytest.mark.slow
def test_the_client_reaches_the_agent_of_a_chain_in_a_chain(run, terminal, path, chain_file):
    inner = [*COMMAND, "run", str(path)]
    outer = chain_file(f"agent: {{run: {json.dumps(inner)}}}\n", "outer.yaml")
    method = terminal_method(run, "run", outer)

    shell = terminal("run", outer, *method["args"], env=method["env"])
    shell.wait_for("code? ")
    shell.type("1234\n")

    assert shell.exit_code() == 7
    assert "['--acp', '--login'] True 'b c' 'own' /usr\n" in shell.seen


@pytest.mark.slow
def test_the_client_reaches_the_agent_of_a_command_line(run, terminal):
    command = ("agent", f"OWN=own {' '.join(LOGIN_AGENT)} --acp")
    method = terminal_method(run, *command)

    shell = terminal(*command, *method["args"], env=method["env"])
    shell.wait_for("code? ")
    shell.type("1234\n")

    assert shell.exit_code() == 7
    assert "['--acp', '--login'] True 'b c' 'own' " in shell.seen


@pytest.mark.slow
def test_behind_wrap_the_words_of_the_agent_stay(run):
    method = terminal_method(run, "wrap", "--use", "usage", "--", *LOGIN_AGENT)

    assert method["args"] == ["--login"]


def test_behind_wrap_an_agent_that_runs_alone_is_in_the_sandbox_of_its_file(
    run, chain_file, tmp_path
):
    """`bwrap` is one that prints what it is to run."""
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "bwrap").write_text('#!/bin/sh\necho inside "$@"\n')
    (tmp_path / "bin" / "bwrap").chmod(0o755)
    (tmp_path / "app").mkdir()
    path = chain_file("agent: {run: other, sandbox: {workspaces: [./app]}}\n")
    env = {"PATH": f"{tmp_path}/bin:/usr/bin:/bin"}

    done = run("wrap", "--chain", path, "--", "sh", "login", env=env, cwd=tmp_path / "app")

    assert done.stdout.startswith("inside ")
    assert done.stdout.endswith("/sh login\n")


@pytest.mark.parametrize(
    "isolated",
    [{"sandbox": {"workspaces": ["."]}}, pytest.param({"ssh": "host"}, marks=pytest.mark.slow)],
)
def test_variables_that_an_isolated_agent_asks_for_are_an_error(run, chain_file, isolated):
    path = chain_file(f"agent: {json.dumps({'run': ['agent'], **isolated})}\n")

    done = run("run", path, "--login", "--env=LD_PRELOAD", "--", env={"LD_PRELOAD": ""})

    assert done.returncode == 3
    assert "the agent asks for variables ('LD_PRELOAD')" in done.stderr
    assert "set what it needs in `env:` of the agent" in done.stderr


def test_an_agent_without_a_program_is_an_error(run, chain_file):
    path = chain_file("agent: {use: test-agent}\n")

    done = run("run", path, "--login", "--", "--setup")

    assert done.returncode == 3
    assert done.stderr == (
        "acp-conductor: the login of test-agent cannot start: "
        "it is a class (`use`): only a program that is started here has one\n"
    )


def test_a_directory_that_is_gone_is_an_error(run, chain_file):
    path = chain_file(f"agent: {{run: [{sys.executable}], cwd: ./gone, name: it}}\n")

    done = run("run", path, "--login")

    assert done.returncode == 3
    assert done.stderr.startswith("acp-conductor: the login of it cannot start in ")


@pytest.mark.external
@pytest.mark.slow
def test_the_client_reaches_the_login_of_claude(run, terminal, chain_file, tmp_path):
    claude = PROGRAMS["claude-agent-acp"]
    agent = from_npm(claude.package, claude.program, variable=claude.variable)
    home = {"HOME": str(tmp_path)}
    path = chain_file(f"proxies: [{{use: usage}}]\nagent: {{run: [{agent}]}}\n")
    done = run("run", path, input=f"{INITIALIZE}\n", env=home)
    methods = json.loads(done.stdout.splitlines()[0])["result"]["authMethods"]
    (method,) = [each for each in methods if each["id"] == "console-login"]

    shell = terminal("run", path, *method["args"], env={**home, **method.get("env", {})})
    shell.wait_for("Paste code")
    shell.type("\x03")

    assert shell.exit_code() != 0
    assert "https://platform.claude.com/oauth/authorize" in shell.seen
    for child in psutil.Process().children():  # of the agent: they outlive it
        child.terminate()
        child.wait(PATIENCE)
