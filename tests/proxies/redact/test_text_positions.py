"""The tables of positions against the official schemas: every text of every message is looked at,
and nothing but identifiers, enumerations, MIME types and base64 is left out."""

from __future__ import annotations

import base64
import copy
import json
from functools import cache
from itertools import product

import pytest
from support.schema_instances import Schema

from conductor.schema.methods import V1, V2
from proxies.redact.text_positions import ANSWER, REQUEST, TextCleaner

STATES = ("newest", "2026-08")
SECRET = "the-secret"
SHOWN = "[redacted]"
BASE64 = base64.b64encode(SECRET.encode()).decode()

OUTSIDE = {
    # of the agent to the client, which does what they say
    *("fs/read_text_file", "fs/write_text_file", "terminal/create", "terminal/kill"),
    *("terminal/output", "terminal/release", "terminal/wait_for_exit"),
    # MCP
    *("mcp/connect", "mcp/disconnect", "mcp/message"),
    # next edit suggestions, whose positions would be wrong
    *("document/didChange", "document/didClose", "document/didFocus", "document/didOpen"),
    *("document/didSave", "nes/accept", "nes/close", "nes/reject", "nes/start", "nes/suggest"),
    "$/cancel_request",
}


schema_of = cache(Schema)


def variants(schema, node, above=()):
    """Instances with a secret, each in another place that is a text by its type."""
    for shape in schema.shapes(node):
        if {"const", "enum"} & shape.node.keys() or (shape.names and above.count(shape.names) > 1):
            continue
        inside = (*above, shape.names)
        match shape.kind:
            case "string":
                yield SECRET
            case "array":
                yield from ([each] for each in variants(schema, shape.node["items"], inside))
            case "map":
                values = shape.node["additionalProperties"]
                yield from ({"any": each} for each in variants(schema, values, inside))
            case "object":
                smallest = schema.minimal(shape)
                for name, member in shape.members.items():
                    for each in variants(schema, member, inside):
                        yield {**smallest, name: each}


KEPT = {
    # identifiers, which have to be the same in other messages
    *("sessionId", "messageId", "toolCallId", "terminalId", "planId", "compactionId"),
    *("elicitationId", "requestId", "optionId", "configId", "groupId", "providerId", "methodId"),
    *("currentModeId", "senderSessionId", "recipientSessionId", "senderMessageId"),
    *("recipientMessageId", "id", "value", "group", "currentValue", "nextCursor"),
    *("cursorId", "idempotencyKey"),
    # enumerations
    *("type", "sessionUpdate", "kind", "status", "state", "stopReason", "action", "outcome"),
    *("mode", "operation", "fileType", "format", "priority", "severity", "theme", "category"),
    *("audience", "apiType", "supported", "syncKind", "positionEncoding", "position"),
    # not shown to users
    *("mimeType", "data", "blob", "const", "enum", "pattern", "required"),
}


def member_of(value):
    """The name of the member that holds the secret."""
    for name, item in value.items() if isinstance(value, dict) else ((None, i) for i in value):
        if item == SECRET or (isinstance(item, dict | list) and SECRET in json.dumps(item)):
            return member_of(item) or name if isinstance(item, dict | list) else name
    return None


def cases():
    for state, (version, methods) in product(STATES, ((1, V1), (2, V2))):
        types = schema_of(state, version).definitions
        for method in methods.values():
            outside = method.name in OUTSIDE or method.name.startswith("proxy/")
            is_asked = not outside and method.params in types
            if is_asked and (method.source == "agent" or method.name == "session/prompt"):
                yield state, version, method.params, REQUEST
            is_answered = not outside or method.name.startswith(("fs/", "terminal/"))
            if is_answered and method.result in types:
                yield state, version, method.result, ANSWER


CLEANER = TextCleaner(lambda text: text.replace(SECRET, SHOWN))


def replaced(value, old, new):
    return json.loads(json.dumps(value).replace(json.dumps(old), json.dumps(new)))


@pytest.mark.parametrize(
    ("state", "version", "name", "table"), list(cases()), ids=lambda each: str(each)[:40]
)
def test_every_text_is_looked_at_and_nothing_else(state, version, name, table):
    for value in variants(schema_of(state, version), {"$ref": f"#/$defs/{name}"}):
        before, member = copy.deepcopy(value), member_of(value)
        if '"terminal_update"' in json.dumps(value) and member == "data":
            encoded = replaced(value, SECRET, BASE64)
            shown = base64.b64encode(SHOWN.encode()).decode()
            assert CLEANER.clean(encoded, table) == replaced(value, SECRET, shown)
            continue
        if '"terminal_output_chunk"' in json.dumps(value) and member == "data":
            continue  # a piece of a stream
        kept = member in KEPT and (name, member) != ("AuthStatusResponse", "state")
        assert CLEANER.clean(value, table) == (value if kept else replaced(value, SECRET, SHOWN))
        assert value == before


@pytest.mark.parametrize(
    "where",
    [
        lambda free: {"update": {"sessionUpdate": "tool_call", "rawInput": free}},
        lambda free: {"update": {"sessionUpdate": "tool_call", "rawOutput": [free]}},
        lambda free: {"update": {"sessionUpdate": "plan", "_meta": free}},
        lambda free: {"update": {**free, "sessionUpdate": "of tomorrow"}},
        lambda free: {
            "update": {"sessionUpdate": "state_update", "error": {"data": [{"more": free}]}}
        },
        lambda free: {"_meta": {"deep": [{"er": free}]}},
        lambda free: {"update": {"content": {"type": "text", "_meta": free}}},
        lambda free: {"toolCall": {"rawInput": {"arguments": free}}},
    ],
)
def test_free_json_has_no_positions(where):
    for name in sorted(KEPT):
        value = where({name: SECRET})

        assert SECRET not in json.dumps(CLEANER.clean(value, REQUEST))
        assert SECRET not in json.dumps(CLEANER.clean({"_meta": value}, ANSWER))
        assert SECRET not in json.dumps(CLEANER.clean([value], {}))


@pytest.mark.parametrize(
    "odd",
    [
        {"toolCallId": {"text": SECRET}},
        {"kind": [{"text": SECRET}]},
        {"content": {"type": "text", "data": SECRET}},
        {"content": {"type": "text", "mimeType": SECRET}},
        {"content": {"type": [SECRET], "data": SECRET}},
        {"content": [{"type": "image", "data": "AAAA", "text": SECRET}]},
        {"content": [{"type": "content", "blob": SECRET}]},
        {"threadId": SECRET},
        {SECRET: 1},
        {"rawInput": {f"a {SECRET}": {SECRET: [SECRET]}}},
    ],
)
def test_values_that_do_not_match_the_schema_are_treated_as_text(odd):
    update = {"sessionUpdate": "tool_call", **odd}
    assert SECRET not in json.dumps(CLEANER.clean({"update": update}, REQUEST))


def test_how_deep_json_is_nested_does_not_matter():
    value = text = {"text": SECRET}
    for _ in range(100_000):
        value = {"a": [value]}

    cleaned = CLEANER.clean({"_meta": value}, REQUEST)["_meta"]

    for _ in range(100_000):
        cleaned, value = cleaned["a"][0], value["a"][0]
    assert (cleaned, text) == ({"text": SHOWN}, {"text": SECRET})
