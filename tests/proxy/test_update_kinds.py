from __future__ import annotations

import json

import pytest

from conductor.proxy.update_kinds import update_filter

PLAN = update_filter({"plan", "tool_call"})


def update(kind, **members):
    params = {"sessionId": "s", "update": {"sessionUpdate": kind, **members}}
    return json.dumps(params, separators=(",", ":")).encode()


@pytest.mark.parametrize(("kind", "passes"), [("plan", True), ("agent_message_chunk", False)])
def test_the_kind_decides(kind, passes):
    assert PLAN(update(kind)) is passes


def test_a_text_that_mentions_a_kind_does_not_pass():
    assert not PLAN(update("agent_message_chunk", content={"type": "text", "text": '"plan"'}))


@pytest.mark.parametrize(
    "raw",
    [
        b'{"sessionId":"s","update":{"sessionUpdate":"x","sessionUpdate":"plan"}}',
        b'{"sessionId":"s","update":{"sessionUpdate":"x"},"update":{"sessionUpdate":"plan"}}',
        b'{"sessionId":"s","update":{"sessionUpdate":"x","session\\u0055pdate":"plan"}}',
        b'{"sessionId":"s","update":{"sessionUpdate":"pl\\u0061n"}}',
        b'{ "update" : { "sessionUpdate" : "plan" }, "sessionId" : "s" }',
        b'{"sessionId":"s","update":{"messageId":"m","sessionUpdate":"plan"}}',
    ],
)
def test_no_spelling_of_a_kind_is_missed(raw):
    assert PLAN(raw)


def test_params_may_be_absent_or_a_view():
    assert not PLAN(None)
    assert PLAN(memoryview(update("plan")))
