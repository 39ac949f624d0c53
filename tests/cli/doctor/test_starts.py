"""What `doctor` says of a started chain."""

from __future__ import annotations

import pytest

from conductor.chainfile.model import ChainFile, ComponentSpec, RegistryName
from conductor.cli.doctor.starts import start_findings
from conductor.cli.trial import Trial
from conductor.errors import RequestError, StartError

FILE = ChainFile(path="c.yaml", name="c", agent=ComponentSpec("agent", run=("agent",)))


def problems(**facts):
    start = Trial(FILE, **{"seconds": 0.5, "waited": {"agent": 0.4}, **facts})
    return [(x.severity, x.check, x.message) for x in start_findings(start) if x.severity != "ok"]


def helps(**facts):
    start = Trial(FILE, **{"seconds": 0.5, "waited": {"agent": 0.4}, **facts})
    return [x.help for x in start_findings(start) if x.severity != "ok"]


def test_a_good_start_has_no_problems():
    assert problems(session_seconds=0.1) == []


def test_a_slow_component_is_a_warning():
    assert problems(waited={"agent": 3.0}) == [("warning", "start", "agent is slow to start")]


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        (ComponentSpec("agent", run=("npx", "-y", "some-agent")), "acp-conductor lock"),
        (ComponentSpec("agent", run=("agent",)), "prewarm"),
        (ComponentSpec("agent", registry=RegistryName("agent", "c.lock")), "prewarm"),
    ],
)
def test_a_slow_program_gets_the_remedy_that_fits_it(spec, expected):
    file = ChainFile(path="c.yaml", name="c", agent=spec)
    start = Trial(file, waited={"agent": 3.0}, seconds=3.0)

    assert expected in next(start_findings(start)).help


def test_a_slow_connection_has_no_remedy():
    spec = ComponentSpec("agent", connect="wss://example.org/acp")
    file = ChainFile(path="c.yaml", name="c", agent=spec)
    start = Trial(file, waited={"agent": 3.0}, seconds=3.0)

    assert next(start_findings(start)).help is None


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
        (
            ComponentSpec("p", use="hooks", options={"hooks": [{"events": ["error"]}]}),
            "OpenCode",
            [],
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
