"""Methods of type `terminal` in an `initialize` result, as the client of a chain gets them."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import pytest

from conductor.chain.terminal_login import for_client, variables
from conductor.chainfile.model import ComponentSpec

AGENT: Any = [SimpleNamespace(), SimpleNamespace(spec=ComponentSpec("it", run=("agent",)))]
REMOTE: Any = [SimpleNamespace(spec=ComponentSpec("it", connect="wss://example.com/acp"))]
PLUGIN: Any = [SimpleNamespace()]
RESULT = (
    b'{"protocolVersion":1,"x":1.50,"authMethods":[{"id":"b",  "name":"B"},{"id":"tui","name":"T",'
    b'"type":"terminal","args":["--setup","now"],"env":{"A":"b c"},"_meta":{"k":1.0}}]}'
)
INVALID = [
    b'{"authMethods":[{"type":"terminal","args":[1]}]}',
    b'{"authMethods":[{"type":"terminal","args":{}}]}',
    b'{"authMethods":"terminal","b":"terminal"}',
    b'{"authMethods":["terminal"]}',
    b'["terminal"]',
]


def test_the_args_lead_to_the_conductor_and_name_the_variables_without_their_values():
    assert for_client(RESULT, "led here", AGENT) == RESULT.replace(
        b'["--setup","now"]', b'["--login","--env=A","--","--setup","now"]'
    )


def test_a_method_without_args_and_env_gets_args():
    result = b'{"authMethods":[{"id":"t","type":"terminal"}]}'

    changed = json.loads(for_client(result, "led here", AGENT))

    assert changed["authMethods"] == [{"id": "t", "type": "terminal", "args": ["--login", "--"]}]


@pytest.mark.parametrize(
    ("login", "components"),
    [("withheld", AGENT), ("led here", REMOTE), ("led here", PLUGIN), ("led here", [])],
)
def test_a_method_that_would_lead_elsewhere_is_left_out(login, components):
    changed = json.loads(for_client(RESULT, login, components))

    assert changed["authMethods"] == [{"id": "b", "name": "B"}]


@pytest.mark.parametrize("result", INVALID)
def test_what_is_no_valid_method_keeps_its_bytes(result):
    assert for_client(result, "led here", AGENT) == result


def test_without_a_rule_the_bytes_stay():
    assert for_client(RESULT, "kept", AGENT) is RESULT


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
