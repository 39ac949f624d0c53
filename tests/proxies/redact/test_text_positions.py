"""The tables of positions against the official schemas: every text of every message is looked at,
and nothing but identifiers, enumerations, MIME types and base64 is left out."""

from __future__ import annotations

import base64
import copy
import json
from functools import cache
from pathlib import Path

import pytest

import conductor.schema
from conductor.schema.methods import V1, V2
from proxies.redact.text_positions import ANSWER, REQUEST, TextCleaner

DATA = Path(conductor.schema.__file__).parent / "data"
FILES = ["newest/v1", "newest/v2", "2026-08/v1", "2026-08/v2"]
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


class Schema:
    """Makes instances of a schema's types, each with a secret in one place."""

    def __init__(self, name):
        self.types = json.loads((DATA / f"{name}.json").read_text())["$defs"]

    def follow(self, node):
        while "$ref" in node:
            node = self.types[node["$ref"].rpartition("/")[2]]
        return node

    def merged(self, node):
        """An object with what it takes over from others."""
        node = self.follow(node)
        whole = {"properties": {}, "required": []}
        for part in [*map(self.merged, node.get("allOf", ())), node]:
            whole["properties"] |= part.get("properties", {})
            whole["required"] = [*whole["required"], *part.get("required", ())]
            for key in ("anyOf", "oneOf", "type", "const", "enum", "items", "additionalProperties"):
                if key in part:
                    whole[key] = part[key]
        return whole

    def smallest(self, node, depth=0):
        node = self.merged(node)
        if "const" in node or "enum" in node:
            return node.get("const", (node.get("enum") or [None])[0])
        for choice in (*node.get("anyOf", ()), *node.get("oneOf", ())):
            return (
                {**self.members(node, depth), **found}
                if isinstance(found := self.smallest(choice, depth + 1), dict)
                else found
            )
        kind = node.get("type", "object")
        kind = kind[0] if isinstance(kind, list) else kind
        if kind == "object":
            return self.members(node, depth)
        return {"array": [], "string": "x", "boolean": True, "null": None}.get(kind, 1)

    def members(self, node, depth):
        required = {*node["required"], *(k for k, v in node["properties"].items() if "const" in v)}
        return {
            name: self.smallest(node["properties"][name], depth + 1)
            for name in required
            if name in node["properties"] and depth < 12
        }

    def variants(self, node, seen=()):
        """Instances with a secret, each in another place that is a text by its type."""
        ref = node.get("$ref", "").rpartition("/")[2]
        if seen.count(ref) > 1:
            return
        seen = (*seen, ref) if ref else seen
        whole = self.merged(node)
        if "const" in whole or "enum" in whole:
            return
        if self.is_string(whole):
            yield SECRET
        required, choices = (
            self.members(whole, 0),
            [*whole.get("anyOf", ()), *whole.get("oneOf", ())],
        )
        for choice in choices:
            for value in self.variants(choice, seen):
                yield {**required, **value} if isinstance(value, dict) else value
        smallest = required if choices else self.smallest(node)
        for name, member in whole["properties"].items():
            for value in self.variants(member, seen):
                yield {**smallest, name: value}
        if isinstance(whole.get("items"), dict):
            yield from ([value] for value in self.variants(whole["items"], seen))
        if isinstance(whole.get("additionalProperties"), dict):
            members = self.variants(whole["additionalProperties"], seen)
            yield from ({"any": value} for value in members)

    def is_string(self, node):
        kind = self.follow(node).get("type")
        return kind == "string" or (isinstance(kind, list) and "string" in kind)


schema_of = cache(Schema)

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
    for file in FILES:
        types = schema_of(file).types
        for method in (V1 if file.endswith("v1") else V2).values():
            outside = method.name in OUTSIDE or method.name.startswith("proxy/")
            is_asked = not outside and method.params in types
            if is_asked and (method.source == "agent" or method.name == "session/prompt"):
                yield pytest.param(file, method.params, REQUEST, id=f"{file}-{method.params}")
            is_answered = not outside or method.name.startswith(("fs/", "terminal/"))
            if is_answered and method.result in types:
                yield pytest.param(file, method.result, ANSWER, id=f"{file}-{method.result}")


CLEANER = TextCleaner(lambda text: text.replace(SECRET, SHOWN))


def replaced(value, old, new):
    return json.loads(json.dumps(value).replace(json.dumps(old), json.dumps(new)))


@pytest.mark.parametrize(("file", "name", "table"), list(cases()))
def test_every_text_is_looked_at_and_nothing_else(file, name, table):
    schema = schema_of(file)
    for value in schema.variants({"$ref": f"#/$defs/{name}"}):
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
