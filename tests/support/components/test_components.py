"""The test components do what their docstrings say; other tests take that for granted."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from support.raw_json import compact

HERE = Path(__file__).parent
PROMPT = {"sessionId": "s1", "prompt": [{"type": "text", "text": "[b][a]perm"}]}
CANCEL = {"method": "$/cancel_request", "params": {"requestId": "c-1"}}


def run(command, *messages):
    """What the component wrote to these messages, and its exit status."""
    lines = "".join(compact({"jsonrpc": "2.0", **message}) + "\n" for message in messages)
    argv = [sys.executable, HERE / command[0], *command[1:]]
    result = subprocess.run(argv, input=lines, capture_output=True, text=True, timeout=60)
    return result.stdout.splitlines(), result.returncode


def written(command, *messages):
    lines, status = run(command, *messages)
    assert status == 0
    return [{k: v for k, v in json.loads(line).items() if k != "jsonrpc"} for line in lines]


def test_the_agent_withdraws_its_question_when_the_prompt_is_cancelled():
    messages = written(
        ["echo_agent.py"],
        {"id": "c-1", "method": "session/prompt", "params": PROMPT},
        CANCEL,
        {"id": "agent-1", "error": {"code": -32800, "message": "withdrawn"}},
    )

    question, withdrawal, chunk, answer = messages
    assert (question["id"], question["method"]) == ("agent-1", "session/request_permission")
    assert withdrawal == {"method": "$/cancel_request", "params": {"requestId": "agent-1"}}
    assert chunk["params"]["update"]["content"]["text"].startswith('[b][a]{"code": -32800')
    assert answer == {"id": "c-1", "error": {"code": -32800, "message": "Request cancelled"}}


def test_unknown_methods_are_refused_with_their_name_by_the_agent():
    (answer,) = written(["echo_agent.py"], {"id": 1, "method": "_vendor/x"})

    error = {"code": -32601, "message": "Method not found", "data": "_vendor/x"}
    assert answer == {"id": 1, "error": error}


@pytest.mark.parametrize("dialect", ["proxy", "_proxy"])
def test_the_proxy_sends_envelopes_in_the_dialect_of_its_initialize(dialect):
    asked, answered, passed_on = written(
        ["pass_proxy.py", "--name", "p"],
        {"id": 0, "method": f"{dialect}/initialize", "params": {"protocolVersion": 1}},
        {"id": "p-1", "result": {"protocolVersion": 1}},
        {"method": f"{dialect}/successor", "params": {"method": "session/update", "params": {}}},
    )

    envelope = {"method": "initialize", "params": {"protocolVersion": 1}}
    assert asked == {"id": "p-1", "method": f"{dialect}/successor", "params": envelope}
    assert answered == {"id": 0, "result": {"protocolVersion": 1}}
    assert passed_on == {"method": "session/update", "params": {}}


@pytest.mark.parametrize(("dialect", "plain"), [("proxy", True), ("_proxy", False)])
def test_the_proxy_sends_cancellations_toward_the_agent_in_its_dialect(dialect, plain):
    request = {"id": "c-1", "method": "session/prompt", "params": PROMPT}

    messages = written(["pass_proxy.py", "--dialect", dialect], request, CANCEL)

    inner = {"method": "$/cancel_request", "params": {"requestId": "p-1"}}
    enveloped = {"method": "_proxy/successor", "params": inner}
    assert messages[1:] == [inner if plain else enveloped]


@pytest.mark.parametrize(
    ("wrong", "expected"),
    [
        ("error", {"id": 0, "error": {"code": -32601}}),
        ("echo", {"id": "p-1", "params": {"method": "proxy/initialize", "params": {}}}),
        ("close", {"id": 0, "error": {"code": -32600}}),
        ("silent", None),
    ],
)
def test_the_flag_decides_how_the_proxy_answers_the_other_dialect(wrong, expected):
    request = {"id": 0, "method": "proxy/initialize", "params": {}}

    messages = written(["pass_proxy.py", "--dialect", "_proxy", "--wrong", wrong], request)

    reaction = messages[0] if messages else None
    if reaction and "error" in reaction:
        reaction["error"] = {"code": reaction["error"]["code"]}
    elif reaction:
        assert reaction.pop("method") == "_proxy/successor"
    assert reaction == expected


@pytest.mark.parametrize(
    ("flags", "lines", "status"),
    [
        ("--exit-at-start 3", 0, 3),
        ("--exit-on x --status 4", 0, 4),
        ("--exit-on x --signal 9", 0, -9),
        ("--hang-on x", 0, 0),
        ("--close-stdout-on x", 0, 0),
        ("--double-answer", 2, 0),
        ("--id-less-error", 2, 0),
        ("--garbage", 6, 0),
        ("--stderr-bytes 100000", 1, 0),
        ("--answer-everything --proxy", 1, 0),
        ("--malformed-response-on x --malformed neither", 1, 0),
    ],
)
def test_each_flag_makes_the_component_misbehave(flags, lines, status):
    output = run(["misbehave.py", *flags.split()], {"id": 1, "method": "x", "params": {}})

    assert (len(output[0]), output[1]) == (lines, status)
