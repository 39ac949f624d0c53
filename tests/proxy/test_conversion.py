"""What survives a handler that works with plain params."""

from __future__ import annotations

from typing import Any

import pytest
from support.peers.port import End, hop

from conductor.limits import MAX_DEPTH
from conductor.proxy import Proxy, on
from conductor.proxy.conversion import decode_params, encode, encode_edited, message_reader
from conductor.proxy.peers import text
from conductor.schema import v1

ODD = (
    b'{"z":1e400,"a":123456789012345678901234567890,"half":"\\ud83d","n":-0,"d":1.10,'
    b'"e":1E5,"deep":{"y":[null,true,{"x":""}],"b":0.1}}'
)


class Raw(End):
    """Keeps the bytes."""

    def notify(self, method: str, params: Any) -> None:
        self.hear(bytes(params))


class Edits(Proxy):
    @on("_edited")
    async def edited(self, params, forward):
        params["new"] = {"text": text("x")}
        await forward(params)

    @on("_untouched")
    async def untouched(self, params, forward):
        await forward(params)

    @on("_edited_in_place")
    async def edited_in_place(self, params, forward):
        params["new"] = {"text": text("x")}
        await forward()

    @on("_original")
    async def original(self, params, forward):
        params["more"] = 1
        del params["more"]
        await forward()


@pytest.mark.parametrize(
    ("method", "expected"),
    [
        ("_edited", ODD[:-1] + b',"new":{"text":{"type":"text","text":"x"}}}'),
        ("_edited_in_place", ODD[:-1] + b',"new":{"text":{"type":"text","text":"x"}}}'),
        ("_untouched", ODD),
        ("_original", ODD),
        ("_unhandled", ODD),
    ],
)
async def test_an_edit_changes_only_the_edited_member(method, expected):
    async with hop(Edits(), Raw) as on_hop:
        on_hop.component.client_port.notify(method, ODD)
        await on_hop.settle()

    assert on_hop.agent.heard == [(expected,)]


@pytest.mark.parametrize(
    "value", [b"1e400", b"1.10", b"1E5", b"-0", b"-0.0", b'"\\ud83d"', b"1" * 5000]
)
def test_every_odd_value_survives(value):
    raw = b'{"v":%b}' % value

    assert encode(message_reader(dict)(raw)) == raw
    assert encode(decode_params(raw, dict)) == raw


@pytest.mark.parametrize("raw", [b'{"a":1}', b'{ "a": 1 }', b'{"a":0,"\\u0061":1}'])
def test_a_change_in_place_is_noticed_by_its_json(raw):
    params = decode_params(raw, dict)
    assert encode_edited(raw, params, message_reader(dict)) is raw
    params["a"] = True  # equal to 1 in Python
    assert encode_edited(raw, params, message_reader(dict)) == b'{"a":true}'


def test_absent_params_stay_absent_unless_a_member_is_added():
    assert encode_edited(None, {}, message_reader(dict)) is None
    assert encode_edited(None, {"a": 1}, message_reader(dict)) == b'{"a":1}'


def test_a_change_in_place_of_a_schema_type_is_noticed():
    raw = b'{ "sessionId": "s", "prompt": [{"type": "text", "text": "hi", "x": 1.50}] }'
    read = message_reader(v1.PromptRequest)
    request = read(raw)
    assert request.prompt[0].text == "hi"
    assert encode_edited(raw, request, read) is raw

    request.prompt[0].text = "ho"
    assert encode_edited(raw, request, read) == (
        b'{"sessionId":"s","prompt":[{"type":"text","text":"ho","x":1.50}]}'
    )


def test_schema_objects_may_stand_anywhere():
    update = v1.AgentMessageChunk(content=v1.TextContent(text="x"))
    assert encode({"a": [{"update": update}]}) == (
        b'{"a":[{"update":{"sessionUpdate":"agent_message_chunk",'
        b'"content":{"type":"text","text":"x"}}}]}'
    )


def test_values_that_are_no_json():
    with pytest.raises(TypeError):
        encode({"a": object()})


def test_extreme_nesting_is_refused_without_a_crash():
    with pytest.raises(ValueError, match="nested more than 128 deep"):
        message_reader(dict)(b'{"a":' + b"[" * MAX_DEPTH + b"]" * MAX_DEPTH + b"}")
