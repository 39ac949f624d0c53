"""The agent that explains a failed start: decisions and texts. Its life is in tests/processes."""

from __future__ import annotations

import pytest
from chain.test_startup_gate import INIT, Porch, cancel

from conductor.chain.start_failure_agent import (
    client_name,
    describe_start_failure,
    unannounced_capabilities,
)
from conductor.errors import StartError
from conductor.jsonrpc.messages import encode_error, exception_to_error

NEW = {"method": "session/new", "params": {"cwd": "/", "mcpServers": []}}


class ExplainingPorch(Porch):
    """A porch whose door explains that the start has failed."""

    def __init__(self):
        super().__init__()
        self.error = StartError("x", "no")
        self.gate._describe_failure = lambda error: "explained"

    def answer_last(self, result=None, error=None):
        self.first.neighbour.respond(self.first.calls[-1], result, error)


def retried(answer=b'{"protocolVersion":1}'):
    """A porch whose second start succeeded, with an open session of the start-failure agent."""
    porch = ExplainingPorch()
    porch.feed(INIT, NEW | {"id": 1})
    porch.written()
    porch.error = None
    porch.feed(NEW | {"id": 2})
    porch.answer(answer)
    return porch


def test_a_retry_uses_the_params_of_the_clients_initialize():
    porch = retried()

    assert porch.first.events[:2] == [
        ("request", "initialize", b'{"protocolVersion": 1}'),
        ("request", "session/new", b'{"cwd": "/", "mcpServers": []}'),
    ]
    porch.answer_last(b'{"sessionId":"real"}')
    assert porch.written() == [{"id": 2, "result": {"sessionId": "real"}}]
    assert (porch.gate.state, porch.opened) == ("open", 1)


def test_what_follows_the_retried_session_waits_and_is_delivered_in_order():
    porch = ExplainingPorch()
    porch.feed(INIT, NEW | {"id": 1})
    porch.error = None
    porch.feed(NEW | {"id": 2}, {"id": 3, "method": "a"}, {"method": "b"})
    porch.answer(b'{"protocolVersion":1}')

    assert [event[1] for event in porch.first.events] == ["initialize", "session/new", "a", "b"]


def test_a_session_of_the_explaining_agent_is_never_the_chains():
    porch = retried()
    porch.answer_last(b'{"sessionId":"real"}')
    porch.written()
    before = len(porch.first.events)
    failure_context = {"sessionId": "acp-conductor-1"}

    porch.feed(
        {"id": 3, "method": "session/prompt", "params": {**failure_context, "prompt": []}},
        {"method": "session/cancel", "params": failure_context},
        {"id": 4, "method": "session/set_mode", "params": failure_context},
    )

    chunk, prompted, refused = porch.written()
    assert "the chain runs now" in chunk["params"]["update"]["content"]["text"]
    assert prompted == {"id": 3, "result": {"stopReason": "end_turn"}}
    assert (refused["id"], refused["error"]["code"]) == (4, -32601)
    assert porch.first.events[before:] == []


def test_the_door_is_out_of_the_way_when_the_explaining_agent_has_no_session():
    porch = ExplainingPorch()
    porch.feed(INIT)
    porch.error = None
    porch.feed(NEW | {"id": 1})
    porch.answer(b'{"protocolVersion":1}')
    porch.answer_last(b'{"sessionId":"real"}')

    assert porch.first.neighbour is porch.link.plain


def test_what_the_chain_sends_and_answers_reaches_the_client_beside_old_sessions():
    porch = retried()
    porch.answer_last(b'{"sessionId":"real"}')
    porch.written()

    porch.feed({"id": 3, "method": "a"})
    porch.first.neighbour.notify("n", None)
    porch.answer_last(b"1")

    assert porch.written() == [{"method": "n"}, {"id": 3, "result": 1}]


def test_a_retry_that_fails_is_another_explained_session():
    porch = ExplainingPorch()
    porch.feed(INIT, NEW | {"id": 1})
    porch.written()
    porch.error = None
    porch.feed(NEW | {"id": 2})
    porch.gate.fail(StartError("x", "again"))

    assert porch.written() == [{"id": 2, "result": {"sessionId": "acp-conductor-2"}}]
    assert porch.gate.state == "explaining"


def test_a_cancelled_retry_is_cancelled_and_leaves_the_explaining_agent():
    porch = ExplainingPorch()
    porch.feed(INIT, NEW | {"id": 1})
    porch.written()
    porch.error = None
    porch.feed(NEW | {"id": 2}, cancel(2))
    assert porch.first.events[-1] == ("cancel", "initialize")
    porch.answer(error=b'{"code":-32800,"message":"Request cancelled"}')

    (answer,) = porch.written()
    assert (answer["id"], answer["error"]["code"]) == (2, -32800)
    assert porch.gate.state == "explaining"


def test_a_second_initialize_is_refused():
    porch = ExplainingPorch()
    porch.feed(INIT, INIT | {"id": 1})

    assert porch.written()[1]["error"]["code"] == -32600


@pytest.mark.parametrize(("asked", "answered"), [(1, 1), (2, 2), (99, 2), (0, 1), ("x", 1)])
def test_the_newest_version_that_both_speak_is_promised(asked, answered):
    porch = ExplainingPorch()
    porch.feed({"id": 0, "method": "initialize", "params": {"protocolVersion": asked}})

    assert porch.written()[0]["result"]["protocolVersion"] == answered
    assert porch.gate.version == answered


def test_an_explanation_has_the_error_its_facts_and_a_remedy():
    error = StartError(
        "helper",
        "command not found: x (PATH is /bin)",
        command=["x", "--acp"],
        stderr_tail=["first", "last"],
        location="chain.yaml:3:4",
    )

    text = describe_start_failure(exception_to_error(error), file="/c/chain.yaml", client="Zed")

    assert text.splitlines() == [
        "**acp-conductor: the chain of this agent did not start.**",
        "",
        "```",
        "component 'helper' did not start: command not found: x (PATH is /bin)",
        "```",
        "- Where: `chain.yaml:3:4`",
        "- Command: `x --acp`",
        "- The last lines of its stderr:",
        "",
        "```",
        "first",
        "last",
        "```",
        "",
        "- Install the program, or write its absolute path: editors often have a shorter `PATH` "
        "than a shell. `env: {PATH: …}` sets one for the component.",
        "- When it is fixed, open a new session (thread): the chain is tried again then.",
        "- In a terminal, `acp-conductor check --start /c/chain.yaml` shows more.",
        "- The log is what acp-conductor writes to stderr: in Zed: the command `zed: open log`.",
    ]


def test_an_error_of_a_component_is_told_with_its_name():
    text = describe_start_failure(
        encode_error(-32603, "Internal error", "no key"), component="claude"
    )

    assert "'claude' answered: Internal error (no key)" in text


def test_what_the_client_was_not_promised_is_named():
    told = b'{"protocolVersion":1,"agentCapabilities":{},"authMethods":[],"agentInfo":{"name":"x"}}'
    real = (
        b'{"protocolVersion":1,"agentCapabilities":{"loadSession":true,"promptCapabilities":'
        b'{"image":true,"audio":false},"mcpCapabilities":{"acp":true}},"authMethods":[{"id":"a"}]}'
    )

    assert unannounced_capabilities(told, real) == [
        "loadSession",
        "promptCapabilities.image",
        "authMethods",
    ]
    assert unannounced_capabilities(told, told) == []


@pytest.mark.parametrize(
    ("params", "name"),
    [
        (b'{"clientInfo":{"name":"zed"}}', "zed"),
        (b'{"info":{"name":"x"}}', "x"),
        (b"[]", ""),
        (None, ""),
    ],
)
def test_the_name_of_the_client(params, name):
    assert client_name(params) == name
