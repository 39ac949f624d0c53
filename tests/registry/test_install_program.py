"""The program of a component that is not installed: it installs it and becomes it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from cli.test_agent_login import terminal_login
from cli.test_login_help import LOGIN_AGENT
from support.raw_json import compact

from conductor.registry.resolve import resolved

from .conftest import DEAD_PROXY, agent_spec, binary_entry, tar_of

pytestmark = pytest.mark.slow

SHOW = '#!/bin/sh\necho "$A $B $*"; echo "${ACP_CONDUCTOR_REGISTRY-unset}"; cat\n'


def start(spec, **env):
    """Start the component as the conductor does, with `input` on stdin."""
    found = resolved(spec)
    environment = {**os.environ, **found.env, **env}
    return subprocess.run(
        found.run, env=environment, input="input\n", capture_output=True, text=True, timeout=60
    )


@pytest.mark.fast
def test_the_component_is_installed_and_started_with_its_stdin(server, chain, registry_file):
    url = server.put("/echo.tgz", tar_of({"echo": SHOW}))
    registry_file(binary_entry(url, args=["acp"], env={"A": "registry", "B": "registry"}))
    spec = agent_spec(chain("{registry: echo, env: {A: file}}"))
    done = start(spec)

    assert done.stdout == "file registry acp\nunset\ninput\n", done.stderr
    assert "`echo` is not locked" in done.stderr
    assert "acp-conductor lock" in done.stderr

    server.bodies.clear()
    again = start(spec, **DEAD_PROXY)
    assert (again.stdout, again.stderr) == (
        done.stdout.replace("unset", os.environ.get("ACP_CONDUCTOR_REGISTRY", "unset")),
        "",
    )


@pytest.mark.fast
def test_a_missing_interpreter_is_named(chain, registry_file, server, tmp_path):
    url = server.put("/echo.tgz", tar_of({"echo": "#!/nonexistent/interpreter\n"}))
    registry_file(binary_entry(url))
    done = start(agent_spec(chain()))

    assert done.returncode == 1
    assert "echo cannot be started: No such file or directory" in done.stderr


def test_a_session_works_through_the_conductor_while_it_is_installed(
    server, chain, registry_file, tmp_path
):
    agent = f"#!/bin/sh\nexec {sys.executable} -m conductor.testing.agent\n"
    registry_file(binary_entry(server.put("/echo.tgz", tar_of({"echo": agent}))))
    run = [sys.executable, "-m", "conductor", "run", str(chain())]
    initialize = {"jsonrpc": "2.0", "id": 1, "method": "initialize"}
    message = compact({**initialize, "params": {"protocolVersion": 1}}) + "\n"
    results = []
    for _ in range(2):
        done = subprocess.run(run, input=message, capture_output=True, text=True, timeout=60)
        results.append(json.loads(done.stdout)["result"]["agentInfo"]["name"])
        server.bodies.clear()

    assert results == ["test-agent", "test-agent"]


def test_a_failure_is_explained_in_the_chat(chain, registry_file):
    registry_file(binary_entry("http://127.0.0.1:9/echo.tgz"))
    session = "acp-conductor-1"
    prompt = {"sessionId": session, "prompt": [{"type": "text", "text": "hello"}]}
    requests = [
        ("initialize", {"protocolVersion": 1}),
        ("session/new", {"cwd": "/", "mcpServers": []}),
        ("session/prompt", prompt),
    ]
    lines = [
        compact({"jsonrpc": "2.0", "id": id, "method": method, "params": params}) + "\n"
        for id, (method, params) in enumerate(requests)
    ]
    run = [sys.executable, "-m", "conductor", "run", str(chain())]
    done = subprocess.run(run, input="".join(lines), capture_output=True, text=True, timeout=60)

    chunks = [json.loads(line) for line in done.stdout.splitlines()]
    texts = [each["params"]["update"]["content"]["text"] for each in chunks if "method" in each]
    assert "`echo` cannot be installed: http://127.0.0.1:9/echo.tgz cannot be fetched" in texts[0]
    assert "check the connection and the proxy variables" in texts[0]


def test_a_proxy_of_the_registry_is_installed_and_passes_messages(
    server, chain, registry_file, tmp_path
):
    program = Path(__file__).parents[1] / "support" / "components" / "pass_proxy.py"
    script = f"#!/bin/sh\nexec {sys.executable} {program}\n"
    registry_file(binary_entry(server.put("/echo.tgz", tar_of({"echo": script}))))
    path = chain("{use: test-agent}", "registry: ./registry.json\nproxies: [{registry: echo}]\n")
    words = [sys.executable, "-m", "conductor", "prompt", str(path), "say hello"]
    done = subprocess.run(words, capture_output=True, text=True, timeout=60)

    assert (done.returncode, "hello" in done.stdout) == (0, True), done.stderr
    assert server.asked == ["/echo.tgz"]


def test_a_login_in_a_terminal_is_that_of_the_installed_program(
    server, chain, registry_file, tmp_path
):
    script = f'#!/bin/sh\nexec {" ".join(LOGIN_AGENT)} "$@"\n'
    url = server.put("/echo.tgz", tar_of({"echo": script}))
    registry_file(binary_entry(url, args=["--acp"], env={"OWN": "registry"}))
    shell = terminal_login(chain(), tmp_path)

    assert shell.exit_code() == 7
    assert "['--acp', '--login'] True 'b c' 'registry' " in shell.seen
