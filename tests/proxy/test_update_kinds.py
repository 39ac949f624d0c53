from __future__ import annotations

import json
from pathlib import Path

import pytest

import conductor.schema
from conductor.proxy.update_kinds import KINDS, update_filter

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


def _kinds(schema):
    """The kinds of updates that a part of a JSON schema defines."""
    if isinstance(schema, list):
        return {kind for each in schema for kind in _kinds(each)}
    if not isinstance(schema, dict):
        return set()
    kind = (schema.get("properties") or {}).get("sessionUpdate")
    own = {kind["const"]} if isinstance(kind, dict) and "const" in kind else set()
    return own | {kind for each in schema.values() for kind in _kinds(each)}


def test_the_known_kinds_are_those_of_the_schemas():
    data = Path(conductor.schema.__file__).parent / "data"
    schemas = [json.loads(file.read_text()) for file in data.glob("**/*.json")]
    assert _kinds(schemas) == KINDS
