"""Conditions that cannot hold are warnings of `check`."""

from __future__ import annotations

import pytest

from conductor.chainfile.loader import load_and_diagnose
from conductor.cli.check.components import check_conditions

AGENT = "agent: {run: [/opt/bin/claude-agent-acp, --verbose]}\n"


def chain(chain_file, when, rest=AGENT):
    loaded, problems = load_and_diagnose(
        str(chain_file(f"proxies:\n  - {{use: usage, when: {when}}}\n{rest}")), {}
    )
    assert problems == []
    return loaded


@pytest.mark.parametrize(
    ("when", "marked", "message", "help"),
    [
        (
            "{capability: fs.writeTxtFile}",
            "fs.writeTxtFile",
            "no client has a capability `fs.writeTxtFile`",
            "did you mean `fs.writeTextFile`?",
        ),
        (
            "{agent: cluade*}",
            "cluade*",
            "it is always left out: `cluade*` does not fit the agent of this file",
            "the agent is called `claude-agent-acp`",
        ),
    ],
)
def test_a_condition_that_cannot_hold_is_a_warning_with_its_place(
    chain_file, when, marked, message, help
):
    [warning] = check_conditions(chain(chain_file, when))

    at = warning.location
    assert (warning.severity, at.line) == ("warning", 3)
    assert at.source[at.column - 1 : at.end_column - 1] == marked
    assert warning.message == f"usage: {message}"
    assert warning.help.startswith(help)


@pytest.mark.parametrize(
    "when",
    [
        "{capability: [fs.writeTextFile, elicitation, session.configOptions.boolean]}",
        "{capability: _meta.terminal_output}",
        "{agent: [gemini, CLAUDE*]}",
        "{client: anything, env: HOME, cwd: ~/w}",
    ],
)
def test_a_condition_that_can_hold_is_none(chain_file, when):
    assert list(check_conditions(chain(chain_file, when))) == []


def test_proxies_without_an_agent_may_be_for_any(chain_file):
    assert list(check_conditions(chain(chain_file, "{agent: cluade*}", ""))) == []
