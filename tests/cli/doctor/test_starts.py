"""What `doctor` says of a started chain."""

from __future__ import annotations

from conductor.chainfile.model import ChainFile, ComponentSpec
from conductor.cli.doctor.starts import ChainStart, start_findings
from conductor.errors import RequestError

FILE = ChainFile("c.yaml", "c", agent=ComponentSpec("agent", run=("agent",)))


def problems(**facts):
    start = ChainStart(FILE, ["agent"], **{"seconds": 0.5, "waited": {"agent": 0.4}, **facts})
    return [(x.severity, x.check, x.message) for x in start_findings(start) if x.severity != "ok"]


def test_a_good_start_has_no_problems():
    assert problems(session_seconds=0.1) == []


def test_a_slow_component_is_a_warning():
    assert problems(waited={"agent": 3.0}) == [("warning", "start", "agent is slow to start")]


def test_a_failed_start_has_the_last_lines_of_stderr():
    error = RequestError(-32603, "agent exited", {"stderr": ["no key"], "location": "c.yaml:2:3"})

    assert problems(seconds=None, waited={}, start_error=error) == [
        ("error", "start", "the chain does not start: agent exited\nno key")
    ]


def test_a_refused_session_is_an_error_and_a_missing_login_another():
    locked = RequestError(-32000, "Authentication required")

    assert problems(session_error=locked) == [("error", "login", "the agent requires a login")]
    assert problems(session_error="no answer within 60 s") == [
        ("error", "session", "session/new fails: no answer within 60 s")
    ]
