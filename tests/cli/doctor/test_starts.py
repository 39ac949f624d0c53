"""What `doctor` says of a chain and of MCP servers that it starts, for a limited time."""

from __future__ import annotations

import json
import os
import signal
import socket

import pytest
import trio

from conductor.chainfile import load
from conductor.chainfile.model import ChainFile, ComponentSpec, RegistryName
from conductor.cli.doctor.starts import (
    AddedServer,
    ServerStart,
    added_servers,
    gather_server,
    gather_starts,
    server_findings,
    start_findings,
)
from conductor.cli.trial import Trial
from conductor.errors import RequestError, StartError

FILE = ChainFile(path="c.yaml", name="c", agent=ComponentSpec("agent", run=("agent",)))


def started(**facts):
    return Trial(FILE, **{"seconds": 0.5, "waited": {"agent": 0.4}, **facts})


def found(trial):
    found = [each for each in start_findings(trial) if each.severity != "ok"]
    return [(each.severity, each.check, each.message) for each in found]


def problems(**facts):
    return found(started(**facts))


def helps(**facts):
    return [each.help for each in start_findings(started(**facts)) if each.severity != "ok"]


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        (ComponentSpec("agent", run=("npx", "-y", "some-agent")), "acp-conductor lock"),
        (ComponentSpec("agent", run=("agent",)), "prewarm"),
        (ComponentSpec("agent", registry=RegistryName("agent", "c.lock")), "prewarm"),
        (ComponentSpec("agent", connect="wss://example.org/acp"), None),
    ],
)
def test_a_slow_component_gets_the_remedy_that_fits_it(spec, expected):
    file = ChainFile(path="c.yaml", name="c", agent=spec)

    slow = next(start_findings(Trial(file, waited={"agent": 3.0}, seconds=3.0)))

    assert (slow.severity, slow.message) == ("warning", "agent is slow to start")
    assert slow.help is expected is None or expected in slow.help


def test_a_failed_start_has_the_last_lines_of_stderr():
    data = StartError("agent", "exited", stderr_tail=["no key"], location="c.yaml:2:3").data()
    error = RequestError(-32603, "agent exited", data)

    assert problems(seconds=None, waited={}, error=error) == [
        ("error", "start", "the chain does not start: agent exited\nno key")
    ]
    assert helps(seconds=None, waited={}, error=error) == ["see c.yaml:2:3"]


def test_a_failed_start_with_a_known_remedy_has_it():
    data = StartError("agent", "command not found: agent", location="c.yaml:2:3").data()
    error = RequestError(-32603, "command not found: agent", data)

    (help,) = helps(seconds=None, waited={}, error=error)

    assert help.startswith("see c.yaml:2:3\nInstall the program, or write its absolute path")


def test_an_error_of_the_agent_itself_is_not_blamed_on_the_chain_file():
    (help,) = helps(error=RequestError(-32603, "Internal error", {"reason": "root"}))

    assert "the answer of the agent, or of a proxy" in help


def test_a_refused_session_is_an_error_and_a_missing_login_another():
    locked = RequestError(-32000, "Authentication required")

    assert problems(error=locked) == [("error", "login", "the agent requires a login")]
    assert problems(is_overdue=True, limit=12.0, waits_for=["db"]) == [
        ("error", "session", "session/new has no answer within 12 s")
    ]
    assert helps(is_overdue=True, waits_for=["db"]) == [
        "it may wait for MCP servers that do not answer: db"
    ]


@pytest.mark.parametrize(
    ("proxy", "agent", "severity"),
    [
        (ComponentSpec("p", use="permissions"), "OpenCode", ["warning"]),
        (ComponentSpec("p", use="permissions"), "gemini-cli", ["ok"]),  # only reads unasked
        (ComponentSpec("p", use="permissions"), "unknown", []),
        (ComponentSpec("p", use="usage"), "OpenCode", []),
        (
            ComponentSpec("p", use="hooks", options={"hooks": [{"events": ["permission"]}]}),
            "OpenCode",
            ["warning"],
        ),
    ],
)
def test_rules_that_the_agent_does_not_ask_are_a_finding_with_its_own_setting(
    proxy, agent, severity
):
    file = ChainFile(
        path="c.yaml", name="c", proxies=(proxy,), agent=ComponentSpec("agent", run=("agent",))
    )
    answer = {"agentInfo": {"name": agent, "version": "1"}}
    start = Trial(file, waited={"agent": 0.4}, seconds=0.5, answer=answer)

    found = [each for each in start_findings(start) if each.check == "permissions"]

    assert [each.severity for each in found] == severity
    for each in found:
        assert "`p` cannot decide about that" in each.message
        assert "sandbox: true" in each.help
        assert ("opencode.json" in each.help) is (agent == "OpenCode")


SERVERS = "proxies: [{use: mcp_servers, with: {servers: %s}}]\nagent: {use: test-agent}\n"


def attempt(chain_file, text, limit):
    """The trial, and the starts of the servers."""

    def report(finding):
        raise AssertionError("a plugin blocks the event loop")

    trial = Trial(load(chain_file(text)), limit=limit)
    return trial, trio.run(gather_starts, trial, report)


def test_an_agent_that_does_not_answer_is_named_and_ended(chain_file, tmp_path):
    program = f"trap '' TERM; echo $$$$ > {tmp_path}/pid; while :; do sleep 100; done"

    trial, _ = attempt(chain_file, f"agent: {{run: [sh, -c, {json.dumps(program)}]}}\n", 0.5)

    message = "the chain does not start within 0.5 s: sh has not answered"
    assert found(trial) == [("error", "start", message)]
    with pytest.raises(ProcessLookupError):
        os.kill(int((tmp_path / "pid").read_text()), signal.SIGCONT)


@pytest.mark.slow
def test_a_session_that_waits_for_a_server_names_it(chain_file):
    servers = [{"name": "deaf", "command": ["sleep", "100"]}]

    trial, servers = attempt(chain_file, SERVERS % json.dumps(servers), 1.5)

    assert found(trial) == [("error", "session", "session/new has no answer within 1.5 s")]
    assert trial.waits_for == ["deaf"]
    assert [start.error for start in servers] == ["it did not answer within 1.5 s"]


def test_the_servers_of_a_chain_are_found(tmp_path):
    path = tmp_path / "c.yaml"
    path.write_text(
        "version: 1\nproxies:\n  - use: mcp_servers\n    with:\n      servers:\n"
        "        - {name: a, command: [a, --fast], env: {K: v}}\n"
        "        - {name: b, url: 'https://b', type: sse, headers: {H: v}}\n"
        "        - {name: c, remove: true}\nagent: {run: x}\n"
    )

    assert added_servers(load(str(path))) == [
        AddedServer("a", ("a", "--fast"), {"K": "v"}),
        AddedServer("b", url="https://b", type="sse", headers={"H": "v"}),
    ]


@pytest.mark.parametrize(
    "entry",
    ["command: npx, args: [-y, a]", "command: []", "command: [a], env: [K=v]", "url: [u]"],
)
def test_an_entry_with_mistakes_is_no_server_that_does_not_start(tmp_path, entry):
    path = tmp_path / "c.yaml"
    servers = f"{{servers: [{{name: a, {entry}}}]}}"
    path.write_text(
        f"version: 1\nproxies: [{{use: mcp_servers, with: {servers}}}]\nagent: {{run: x}}\n"
    )

    assert added_servers(load(str(path))) == []


@pytest.mark.parametrize(
    ("start", "severity", "help"),
    [
        (ServerStart(AddedServer("a", ("a",)), 0.1, tools=2), "ok", None),
        (ServerStart(AddedServer("a", url="u"), 9.0, tools=2), "warning", None),
        (
            ServerStart(AddedServer("a", ("a b", "c")), 0.1, error="gone"),
            "error",
            "run it in a terminal: 'a b' c",
        ),
        (
            ServerStart(AddedServer("a", ("a",)), 0.1, error="command not found: a"),
            "error",
            "install it, or write its absolute path",
        ),
    ],
)
def test_what_to_do(start, severity, help):
    [finding] = server_findings(start)

    assert (finding.severity, finding.help) == (severity, help)


def test_a_server_that_hangs_has_the_limit_of_the_chain():
    with socket.create_server(("127.0.0.1", 0)) as silent:
        server = AddedServer("a", url=f"http://127.0.0.1:{silent.getsockname()[1]}/")

        start = trio.run(gather_server, server, 0.1)

    assert (start.error, start.is_overdue) == ("it did not answer within 0.1 s", True)
