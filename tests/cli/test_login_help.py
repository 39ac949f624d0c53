"""Agents that require login, and agents with invalid results."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

LOGIN_AGENT = [
    sys.executable,
    str(Path(__file__).parents[1] / "support" / "components" / "login_agent.py"),
]


@pytest.fixture
def path(chain_file):
    return chain_file(f"agent: {{run: {json.dumps(LOGIN_AGENT)}, name: it}}\n")


def steps(path):
    return [
        "log in first; the agent offers:",
        "- Log in with a browser: Opens a page",
        f"run: acp-conductor prompt --authenticate browser {path} hello",
        "- Log in here",
        f"run: acp-conductor login {path} tui",
    ]


def test_prompt_lists_login_methods_and_commands(run, path):
    result = run("prompt", path, "hello")

    assert (result.returncode, result.stdout) == (1, "")
    assert result.stderr.splitlines() == [
        "error: session/new: Authentication required (-32000)",
        *(f"  {line}" for line in steps(path)),
    ]


def test_the_listed_command_works(run, path):
    result = run("prompt", "--authenticate", "browser", path, "hello")

    assert (result.returncode, result.stdout, result.stderr) == (0, "", "")


def test_check_lists_login_methods_too(run, path):
    result = run("check", "--start", path)

    assert result.returncode == 0
    lines = [line.strip() for line in result.stdout.splitlines()]
    remark = "authentication: not tried; if the agent requires it:"
    assert lines[lines.index(remark) + 1 :] == steps(path)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("argument", "options", "method"),
    [
        ("null", [], "session/new"),
        ("turn", ["--json", "--authenticate", "browser"], "session/prompt"),
    ],
)
def test_an_invalid_result_is_an_error(run, chain_file, argument, options, method):
    path = chain_file(f"agent: {{run: {json.dumps([*LOGIN_AGENT, argument])}}}\n")

    result = run("prompt", *options, path, "hello")

    assert result.returncode == 1
    said = f"the agent: its answer to {method} is null, not an object"
    assert said in result.stdout + result.stderr
    assert "Traceback" not in result.stderr
