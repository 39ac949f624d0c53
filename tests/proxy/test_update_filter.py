from __future__ import annotations

import json

import pytest

from conductor.proxy.middleware import update_filter

PLAN = update_filter({"plan", "tool_call"})


def update(kind, **members):
    params = {"sessionId": "s", "update": {"sessionUpdate": kind, **members}}
    return json.dumps(params, separators=(",", ":")).encode()


def test_an_update_of_another_kind_does_not_pass_whatever_its_text_mentions():
    assert not PLAN(update("agent_message_chunk", content={"type": "text", "text": '"plan"'}))
    assert not PLAN(None)


@pytest.mark.parametrize(
    "raw",
    [
        b'{"sessionId":"s","update":{"sessionUpdate":"x","sessionUpdate":"plan"}}',
        b'{"sessionId":"s","update":{"sessionUpdate":"x"},"update":{"sessionUpdate":"plan"}}',
        b'{"sessionId":"s","update":{"sessionUpdate":"x","session\\u0055pdate":"plan"}}',
        b'{"sessionId":"s","update":{"sessionUpdate":"pl\\u0061n"}}',
        b'{ "update" : { "sessionUpdate" : "plan" }, "sessionId" : "s" }',
        b'{"sessionId":"s","update":{"messageId":"m","sessionUpdate":"plan"}}',
        memoryview(b'{"sessionId":"s","update":{"sessionUpdate":"plan"}}'),
    ],
)
def test_no_spelling_of_a_kind_is_missed(raw):
    assert PLAN(raw)
