"""Methods of type `terminal` in an `initialize` result, as the client of a chain gets them."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import pytest
from support.raw_json import compact

from conductor.chain.login_methods import for_client, variables
from conductor.chainfile.model import ComponentSpec, Sandbox

AGENT: Any = [SimpleNamespace(), SimpleNamespace(spec=ComponentSpec("it", run=("agent",)))]
REMOTE: Any = [SimpleNamespace(spec=ComponentSpec("it", connect="wss://example.com/acp"))]
PLUGIN: Any = [SimpleNamespace()]
SANDBOXED: Any = [
    SimpleNamespace(spec=ComponentSpec("it", run=("agent",), sandbox=Sandbox({"/w": "/w"})))
]
BY_SSH: Any = [SimpleNamespace(spec=ComponentSpec("it", run=("agent",), ssh="host"))]
RESULT = (
    b'{"protocolVersion":1,"x":1.50,"authMethods":[{"id":"b",  "name":"B"},{"id":"tui","name":"T",'
    b'"type":"terminal","args":["--setup","now"],"env":{"A":"b c"},"_meta":{"k":1.0}}]}'
)
COMMAND = ["python", "acp-conductor", "run", "review.yaml"]
INVALID = [
    b'{"authMethods":[{"type":"terminal","args":[1]}]}',
    b'{"authMethods":[{"type":"terminal","args":{}}]}',
    b'{"authMethods":"terminal","b":"terminal"}',
    b'{"authMethods":["terminal"]}',
    b'["terminal"]',
]


def test_the_args_lead_to_the_conductor_and_name_the_variables_without_their_values():
    assert for_client(RESULT, "redirected", AGENT, COMMAND) == RESULT.replace(
        b'["--setup","now"]', b'["--login","--env=A","--","--setup","now"]'
    )


def test_a_method_without_args_and_env_gets_args():
    result = b'{"authMethods":[{"id":"t","type":"terminal"}]}'

    changed = json.loads(for_client(result, "redirected", AGENT, COMMAND))

    assert changed["authMethods"] == [{"id": "t", "type": "terminal", "args": ["--login", "--"]}]


@pytest.mark.parametrize(
    ("login", "components"),
    [("withheld", AGENT), ("redirected", REMOTE), ("redirected", PLUGIN), ("redirected", [])],
)
def test_a_method_that_would_lead_elsewhere_is_left_out(login, components):
    changed = json.loads(for_client(RESULT, login, components, COMMAND))

    assert changed["authMethods"] == [{"id": "b", "name": "B"}]


@pytest.mark.parametrize("result", INVALID)
def test_what_is_no_valid_method_keeps_its_bytes(result):
    assert for_client(result, "redirected", AGENT, COMMAND) == result


def test_without_a_rule_the_bytes_stay():
    assert for_client(RESULT, "kept", AGENT, COMMAND) is RESULT
    assert for_client(RESULT, "kept", SANDBOXED, COMMAND) is RESULT
    assert for_client(RESULT, "appended", AGENT, COMMAND) is RESULT


@pytest.mark.parametrize(
    ("env", "found"),
    [
        ({"A": "b", "C": 1}, {"A": "b"}),
        ([{"name": "A", "value": "b"}, {"name": "C"}, 1], {"A": "b"}),
        (None, {}),
        ("A=b", {}),
    ],
)
def test_variables_of_both_versions(env, found):
    assert variables(env) == found


WHOLE = {"command": "node", "args": ["agent.js", "--setup"], "label": "Log in"}


def method(**members):
    return compact({"authMethods": [{"id": "t", "_meta": {"terminal-auth": WHOLE}, **members}]})


def test_a_whole_command_in_the_meta_leads_to_the_conductor_too():
    """So that it has the environment of the agent in the chain."""
    told = method(type="terminal", args=["--setup"], env={"A": "b"}).encode()

    (changed,) = json.loads(for_client(told, "redirected", AGENT, COMMAND))["authMethods"]

    words = ["--login", "--env=A", "--", "--setup"]
    assert changed["args"] == words
    command = {"command": "python", "args": [*COMMAND[1:], *words], "env": {"A": "b"}}
    assert changed["_meta"] == {"terminal-auth": {**WHOLE, **command}}


def test_a_whole_command_of_another_program_stays_for_a_client_on_this_machine_alone():
    told = method().encode()

    assert for_client(told, "redirected", AGENT, COMMAND) == told
    (changed,) = json.loads(for_client(told, "withheld", AGENT, COMMAND))["authMethods"]
    assert changed == {"id": "t"}


@pytest.mark.parametrize("isolated", [SANDBOXED, BY_SSH], ids=["sandbox", "ssh"])
@pytest.mark.parametrize(
    ("members", "got"),
    [
        ({"type": "terminal", "env": {"LD_PRELOAD": "/w/evil.so"}}, None),
        ({"type": "terminal", "env": [{"name": "PATH", "value": "/w"}]}, None),
        ({"type": "terminal", "args": [1]}, None),
        ({"type": "other"}, None),
        ({}, {}),
        (
            {"type": "terminal", "args": ["--setup"], "env": {}},
            {
                "type": "terminal",
                "args": ["--login", "--", "--setup"],
                "_meta": {
                    "terminal-auth": {
                        "command": "python",
                        "args": [*COMMAND[1:], "--login", "--", "--setup"],
                    }
                },
            },
        ),
    ],
)
def test_of_an_isolated_agent_come_neither_variables_nor_other_commands(isolated, members, got):
    told = method(**members).encode()

    changed = json.loads(for_client(told, "redirected", isolated, COMMAND))["authMethods"]

    assert changed == ([] if got is None else [{"id": "t", **got}])


def test_behind_wrap_a_sandboxed_agent_has_no_login_outside_of_its_sandbox():
    changed = json.loads(for_client(RESULT, "appended", SANDBOXED, COMMAND))["authMethods"]

    assert changed == [{"id": "b", "name": "B"}]
