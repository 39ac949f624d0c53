from __future__ import annotations

import json
from pathlib import Path

import pytest

import conductor.schema
from conductor.proxy import Proxy, on_update
from conductor.proxy.annotations import DeclarationError
from conductor.proxy.update_kinds import KINDS, update_filter

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


def test_a_misspelled_kind_is_an_error_at_import():
    with pytest.raises(DeclarationError, match="kind 'plann'; did you mean 'plan'"):

        class Misspelled(Proxy):
            @on_update("tool_call", "plann")
            async def handle(self, session, update, forward): ...


@pytest.mark.parametrize("kind", ["_plann", "vendor_status"])
def test_a_kind_of_an_extension_is_none(kind):
    class Extended(Proxy):
        @on_update(kind)
        async def handle(self, session, update, forward): ...
