"""`acp-conductor doctor`, with real chains and MCP servers."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from cli.conftest import PATIENCE

SERVER = """
import json, sys
TOOL = {"name": "add", "inputSchema": {"type": "object"}}
for line in sys.stdin:
    request = json.loads(line)
    if "id" not in request:
        continue
    answer = {"jsonrpc": "2.0", "id": request["id"]}
    if request["method"] == "initialize":
        answer["result"] = {
            "protocolVersion": request["params"]["protocolVersion"],
            "capabilities": {"tools": {}},
            "serverInfo": {"name": "toolbox", "version": "1"},
        }
    elif request["method"] == "tools/list":
        answer["result"] = {"tools": [TOOL]}
    else:
        answer["error"] = {"code": -32601, "message": "Method not found"}
    print(json.dumps(answer), flush=True)
"""
"""An MCP server that imports no SDK: on a busy machine the import alone takes the time that the
doctor gives a server."""
LOGIN = """
from conductor.proxy import Agent, RequestError, on

class Locked(Agent):
    @on("initialize")
    async def initialize(self, params):
        methods = [{"id": "browser", "name": "Browser"}]
        return {"protocolVersion": 1, "agentCapabilities": {}, "authMethods": methods}

    @on("session/new")
    async def new(self, params):
        raise RequestError(-32000, "Authentication required")
"""


def diagnose(run, *arguments, code):
    result = run("doctor", *arguments, "--json")
    assert result.returncode == code, result.stdout + result.stderr
    found = [json.loads(line) for line in result.stdout.splitlines()]
    severities = [each["severity"] for each in found]
    assert severities == sorted(severities, key=["error", "warning", "ok"].index)
    return found


def of(check, found):
    return [(each["severity"], each["message"]) for each in found if each["check"] == check]


@pytest.mark.slow
def test_a_chain_and_its_mcp_servers_are_started(run, chain_file, tmp_path):
    (tmp_path / "server.py").write_text(SERVER)
    servers = [
        {"name": "toolbox", "command": [sys.executable, str(tmp_path / "server.py")]},
        {"name": "absent", "command": ["no-such-server"]},
        {"name": "dies", "command": ["sh", "-c", "echo broken >&2; exit 3"]},
        {"name": "web", "url": "http://127.0.0.1:9/"},
    ]
    proxy = {"use": "mcp_servers", "with": {"servers": servers}}
    chain = chain_file(f"proxies: [{json.dumps(proxy)}]\nagent: {{use: test-agent, isolate: true}}")

    found = diagnose(run, chain, code=1)

    assert of("mcp", found)[:2] == [
        ("error", "MCP server absent does not start: command not found: no-such-server"),
        ("error", "MCP server dies does not start: Connection closed\nbroken"),
    ]
    assert of("mcp", found)[2][1].startswith("MCP server web does not start: ")
    assert of("mcp", found)[3] == ("ok", "MCP server toolbox starts; tools: 1")
    assert [severity for severity, _ in of("session", found) + of("login", found)] == ["ok"] * 2
    [agent] = [each for each in found if each["message"].startswith("test-agent started")]
    assert agent["seconds"] > 0


@pytest.mark.slow
def test_a_chain_that_does_not_start_says_where_and_why(run, chain_file):
    chain = chain_file("agent: {run: [sh, -c, 'echo no key >&2; exit 4']}\n")

    found = diagnose(run, chain, code=1)

    [(severity, message)] = of("start", found)
    assert severity == "error"
    assert message.startswith("the chain does not start: ")
    assert "exited with status 4" in message
    assert "no key" in message


@pytest.mark.slow
def test_an_agent_that_requires_a_login_is_an_error_with_its_methods(run, chain_file, tmp_path):
    (tmp_path / "locked.py").write_text(LOGIN)
    chain = chain_file("agent: {use: './locked.py:Locked'}\n")

    found = diagnose(run, chain, code=1)

    [login] = [each for each in found if each["check"] == "login"]
    assert (login["severity"], login["message"]) == ("error", "the agent requires a login")
    assert "acp-conductor prompt --authenticate browser" in login["help"]


@pytest.mark.slow
def test_the_chain_has_the_proxies_of_the_project_that_is_trusted(run, chain_file, tmp_path):
    directory = tmp_path / "project"
    directory.mkdir()
    path = directory / ".acp-conductor.yaml"
    path.write_text("version: 1\nproxies: [{use: usage}, {use: context, with: {text: x}}]\n")
    chain = chain_file("proxies: [{use: redact}]\nagent: {use: test-agent}\n")

    def run_there(*arguments):
        env = {"HOME": str(tmp_path), "XDG_STATE_HOME": str(tmp_path / "state")}
        return run(*arguments, cwd=directory, env=env)

    untrusted = diagnose(run_there, chain, code=0)
    assert run_there("trust", "--yes").returncode == 0
    trusted = diagnose(run_there, chain, code=0)
    alone = diagnose(run_there, code=0)

    usage = ("ok", "usage runs in the conductor's process")
    assert [usage in of("start", found) for found in (untrusted, trusted, alone)] == [0, 1, 1]
    assert of("projects", untrusted) == [("warning", f"{path} is not trusted yet")]
    assert of("projects", trusted) == [
        ("ok", f"{path} is trusted, and adds 2 proxies to its sessions")
    ]
    [(severity, order)] = of("proxies", trusted)
    assert (severity, of("proxies", untrusted), of("proxies", alone)) == ("warning", [], [])
    assert order.splitlines() == [
        f"{path}:2:31: context: it stands after `redact`, nearer to the agent: "
        "secrets in the texts that it adds reach the agent",
        f"{chain}:2:17: `redact` is here",
    ]


def test_mistakes_in_the_chain_file_are_its_exit_code(run, chain_file):
    assert run("doctor", chain_file("agnt: x\n")).returncode == 2


def test_the_text_has_the_worst_first_and_no_escapes(run, chain_file, tmp_path):
    (tmp_path / "there").mkdir()
    path = f"{tmp_path}/there:\x1b[31m:{Path(sys.executable).parent}"
    done = run("doctor", env={"PATH": path})

    lines = done.stdout.splitlines()
    assert (done.returncode, lines[:2]) == (
        0,
        [
            "warning  path: PATH has the relative directory  [31m",
            "         → write it as an absolute path",
        ],
    )
    assert any(line.startswith(f"ok       python: 3.{sys.version_info[1]}.") for line in lines)


BLOCKING = """
import sys
from conductor.cli import main
from conductor.cli.doctor import starts

starts.LIMIT = 2.0
sys.argv = ["acp-conductor", "doctor", sys.argv[1]]
main()
"""


@pytest.mark.slow
def test_a_plugin_that_blocks_its_import_is_reported(chain_file, tmp_path):
    (tmp_path / "slow.py").write_text("import time\ntime.sleep(1000)\nclass Slow: pass\n")
    path = chain_file("proxies: [{use: './slow.py:Slow'}]\n")

    done = subprocess.run(
        [sys.executable, "-c", BLOCKING, path], capture_output=True, text=True, timeout=PATIENCE
    )

    assert done.returncode == 1
    assert done.stdout.startswith("error    start: a plugin blocks the event loop")
    assert f"at={tmp_path}/slow.py:2" in done.stderr
