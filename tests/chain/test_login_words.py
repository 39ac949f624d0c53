"""The words of a terminal login on the command line of a chain."""

from __future__ import annotations

import pytest

from conductor.chain.login_words import AgentLogin, split_login, terminal_login_of


@pytest.mark.parametrize(
    ("arguments", "command", "login"),
    [
        (["run", "f", "--login", "--", "a", "--login"], 2, AgentLogin(("a", "--login"))),
        (
            ["agent", "--", "x", "--login", "--env=A", "--", "--env=B"],
            3,
            AgentLogin(("--env=B",), ("A",)),
        ),
        (["--log", "info", "run", "f", "--login"], 4, AgentLogin(())),
        (["wrap", "--", "x", "--login"], 4, None),
        (["prompt", "f", "--login"], 3, None),
        (["run", "f"], 2, None),
    ],
)
def test_only_run_and_agent_take_the_words_of_a_login(arguments, command, login):
    assert split_login(arguments) == (arguments[:command], login)


@pytest.mark.parametrize(
    ("arguments", "result"),
    [
        (["--log", "info", "run", "f"], "redirected"),
        (["connect", "wss://example.com/acp"], "withheld"),
        (["wrap", "--", "x", "run"], "appended"),
        (["-c"], "kept"),
    ],
)
def test_where_the_words_lead_that_a_client_appends(arguments, result):
    assert terminal_login_of(arguments) == result
