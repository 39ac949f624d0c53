"""Typed edits change one member; reading is lenient where the schema says so."""

from __future__ import annotations

import copy
import itertools
import json
import pickle
from typing import Any

import attrs
import msgspec
import pytest

from conductor.schema import v1, v2
from conductor.schema.base import ABSENT
from conductor.schema.convert import SchemaError, converter, dumps, structure, unstructure

CHUNK = (
    b'{"sessionId":"s","update":{"sessionUpdate":"agent_message_chunk",'
    b'"content":{"type":"text","text":"hi"}}}'
)


def read(text: str, cls: Any) -> Any:
    return structure(text.encode(), cls)


def test_edit_changes_only_the_edited_member() -> None:
    text = (
        '{"zz":1,"prompt":[{"text":"hi","_meta":null,"type":"text","new":[1.10,{"b":1,"a":2}]}],'
        '"sessionId":"s","_meta":{"big":123456789012345678901234567890,"huge":1e400},"y":null}'
    )
    request = read(text, v1.PromptRequest)
    request.prompt[0].text = "HI"
    assert dumps(request).decode() == text.replace("hi", "HI")


def test_inserted_block_leaves_the_others_alone() -> None:
    text = '{"prompt":[{"x":1,"type":"text","text":"a"}],"sessionId":"s"}'
    request = read(text, v1.PromptRequest)
    request.prompt.insert(0, v1.text("first"))
    assert dumps(request).decode() == text.replace("[", '[{"type":"text","text":"first"},')


def test_number_in_an_untouched_member_keeps_its_spelling() -> None:
    parts = itertools.product(
        ("0", "-0", "7", "-123456789012345678901", "9" * 40, "9" * 5000),
        ("", ".0", ".10", ".00000000000000000001"),
        ("", "e5", "E5", "e+16", "E-7", "e400", "e-999"),
    )
    for number in map("".join, parts):
        text = f'{{"sessionId":"s","prompt":[],"_meta":{{"n":{number}}},"more":[{number}]}}'
        assert dumps(read(text, v1.PromptRequest)).decode() == text


def test_number_in_a_typed_field_keeps_its_spelling_until_it_is_changed() -> None:
    text = '{"amount":1.10,"currency":"USD"}'
    cost = read(text, v1.Cost)
    assert cost.amount == 1.1
    assert dumps(cost).decode() == text
    cost.amount = 2.5
    assert dumps(cost).decode() == '{"amount":2.5,"currency":"USD"}'


def test_whole_float_is_an_integer_and_stays_as_written() -> None:
    text = '{"used":1.0,"size":2,"sessionUpdate":"usage_update"}'
    usage = read(text, v1.UsageUpdate)
    assert (usage.used, type(usage.used)) == (1, int)
    assert dumps(usage).decode() == text


def test_lone_surrogate_survives() -> None:
    text = r'{"sessionId":"s","prompt":[{"type":"text","text":"\ud800"}],"\udfff":1e400}'
    assert dumps(read(text, v1.PromptRequest)).decode() == text


def test_unknown_variant_is_kept_and_can_be_edited() -> None:
    text = '{"sessionId":"s","update":{"sessionUpdate":"new_thing","a":{"b":1}}}'
    for cls in (v1.SessionNotification, v2.UpdateSessionNotification):
        notification = read(text, cls)
        assert notification.update.session_update == "new_thing"
        assert notification.update.extra == {"a": {"b": 1}}
        assert dumps(notification).decode() == text
        notification.update.extra["a"] = 2
        assert dumps(notification).decode() == text.replace('{"b":1}', "2")


def test_unknown_enumeration_value_is_seen_and_kept() -> None:
    text = '{"sessionUpdate":"tool_call","toolCallId":"1","title":"t","kind":"teleport"}'
    call = read(text, v1.SessionUpdate)
    assert call.kind == "teleport"
    assert dumps(call).decode() == text


def test_variant_used_alone_gets_its_tag_in_the_union_only() -> None:
    call = v1.ToolCallUpdate(tool_call_id="1")
    assert unstructure(call) == {"toolCallId": "1"}
    assert unstructure(v1.SessionNotification(session_id="s", update=call))["update"] == {
        "sessionUpdate": "tool_call_update",
        "toolCallId": "1",
    }


def test_absent_and_null_are_distinct_in_a_patch() -> None:
    absent = read('{"sessionUpdate":"session_info_update"}', v2.SessionUpdate)
    null = read('{"sessionUpdate":"session_info_update","title":null}', v2.SessionUpdate)
    assert (absent.title, null.title) == (ABSENT, None)
    assert not absent.title
    absent.title, null.title = null.title, absent.title
    assert dumps(absent) == b'{"sessionUpdate":"session_info_update","title":null}'
    assert dumps(null) == b'{"sessionUpdate":"session_info_update"}'


def test_explicit_null_survives_where_it_means_absent() -> None:
    text = '{"path":"a","limit":null,"sessionId":"s"}'
    request = read(text, v1.ReadTextFileRequest)
    request.path = "b"
    assert dumps(request).decode() == text.replace('"a"', '"b"')


def test_invalid_lenient_member_reads_as_its_default_and_is_written_back() -> None:
    text = '{"text":"a","annotations":7,"_meta":[],"type":"text"}'
    block = read(text, v1.TextContent)
    assert (block.annotations, block.meta) == (None, None)
    assert dumps(block).decode() == text
    block.meta = {"a": 1}
    assert dumps(block).decode() == text.replace("[]", '{"a":1}')


def test_invalid_lenient_object_reads_as_its_default_and_is_written_back() -> None:
    text = '{"protocolVersion":1,"agentCapabilities":"none","authMethods":3}'
    response = read(text, v1.InitializeResponse)
    assert response.agent_capabilities == v1.AgentCapabilities()
    assert response.auth_methods == []
    assert dumps(response).decode() == text
    response.agent_capabilities.load_session = True
    assert dumps(response).decode() == text.replace('"none"', '{"loadSession":true}')


def test_absent_default_object_is_not_written_until_it_is_changed() -> None:
    response = read('{"protocolVersion":1}', v1.InitializeResponse)
    assert response.agent_capabilities.prompt_capabilities.image is False
    assert dumps(response) == b'{"protocolVersion":1}'
    response.agent_capabilities.prompt_capabilities.image = True
    assert unstructure(response)["agentCapabilities"] == {"promptCapabilities": {"image": True}}


def test_null_list_reads_as_empty_and_stays_null() -> None:
    text = '{"sessionId":"s","command":"ls","args":null,"env":null}'
    request = read(text, v1.CreateTerminalRequest)
    assert (request.args, request.env) == ([], [])
    assert dumps(request).decode() == text
    request.args.append("-l")
    assert dumps(request).decode() == text.replace('"args":null', '"args":["-l"]')


def test_skipped_items_stay_behind_the_item_that_they_followed() -> None:
    text = '{"sessionUpdate":"plan","entries":[0,A,1,B,2]}'
    a, b = (f'{{"content":"{name}","priority":"low","status":"pending"}}' for name in "ab")
    plan = read(text.replace("A", a).replace("B", b), v1.SessionUpdate)
    assert [entry.content for entry in plan.entries] == ["a", "b"]
    plan.entries.insert(0, copy.copy(plan.entries[1]))
    del plan.entries[1]
    assert dumps(plan).decode() == f'{{"sessionUpdate":"plan","entries":[0,1,{b},{b},2]}}'


def test_skipped_items_go_when_the_list_is_replaced() -> None:
    plan = read('{"sessionUpdate":"plan","entries":[0]}', v1.SessionUpdate)
    assert unstructure(plan)["entries"] == [0]
    plan.entries = []
    plan.meta = {}
    assert unstructure(plan)["entries"] == [0]  # an empty list is what was read
    plan.entries = [v1.PlanEntry(content="c", priority="low", status="pending")]
    assert [entry["content"] for entry in unstructure(plan)["entries"]] == ["c"]


def test_unknown_members_can_be_added_and_removed() -> None:
    block = read('{"type":"text","a":1,"text":"t","b":2}', v1.TextContent)
    del block.extra["a"]
    block.extra["c"] = 3
    assert dumps(block) == b'{"type":"text","text":"t","b":2,"c":3}'
    assert dumps(v1.TextContent(text="t", extra={"c": 3})) == b'{"type":"text","text":"t","c":3}'


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            '{"sessionId":"s","prompt":[{"type":"text","text":5}]}',
            "prompt[0].text: expected string, got a number",
        ),
        (
            '{"sessionId":"s","prompt":[{"type":"text"}]}',
            "prompt[0].text: expected string, got nothing",
        ),
        ('{"sessionId":"s","prompt":[{}]}', "prompt[0].type: expected string, got nothing"),
        ('{"sessionId":"s","prompt":"hush"}', "prompt: expected array, got a string"),
        ('{"sessionId":"s","prompt":{}}', "prompt: expected array, got an object"),
        ('{"sessionId":null,"prompt":[]}', "sessionId: expected string, got null"),
        ("[]", "expected object, got an array"),
        ('{"sessionId":', "not JSON: Expecting value at character 13"),
        ('{"sessionId":NaN}', "not JSON: NaN"),
        ("[" * 100_000, "nested more than 128 deep"),
    ],
)
def test_error_names_the_place_and_not_the_value(text: str, message: str) -> None:
    with pytest.raises(SchemaError) as caught:
        read(text, v1.PromptRequest)
    assert str(caught.value) == message


def test_input_that_is_not_utf8_is_refused() -> None:
    with pytest.raises(SchemaError, match="not UTF-8"):
        structure(b'{"sessionId":"\xff"}', v1.PromptRequest)


def test_every_kind_of_raw_json_is_read() -> None:
    expected = structure(CHUNK, v1.SessionNotification)
    for raw in (bytearray(CHUNK), memoryview(CHUNK), msgspec.Raw(CHUNK), json.loads(CHUNK)):
        assert structure(raw, v1.SessionNotification) == expected


def test_untagged_variants_are_distinguished_by_their_members() -> None:
    stdio = structure(
        {"name": "m", "command": "c", "args": [], "env": [], "type": "stdio"}, v1.McpServer
    )
    assert type(stdio) is v1.McpServerStdio
    assert stdio.extra == {"type": "stdio"}
    assert (
        type(structure({"name": "m", "type": "ws", "url": "u"}, v1.McpServer)) is v1.OtherMcpServer
    )
    assert (
        type(structure({"uri": "u", "blob": "b"}, v1.EmbeddedResourceResource))
        is v1.BlobResourceContents
    )
    assert type(structure({"error": {"code": 1, "message": "m"}}, v1.MessageMcpResponse)) is (
        v1.MessageMcpErrorResponse
    )


def test_variant_without_tag_may_have_a_member_of_its_name_and_the_value_of_another() -> None:
    text = '{"type":"http","name":"m","command":"c","args":[],"env":[]}'
    server = read(text, v1.McpServer)
    assert type(server) is v1.McpServerStdio
    assert dumps(server).decode() == text
    with pytest.raises(SchemaError):
        read('{"type":"http","name":"m"}', v1.McpServer)


@pytest.mark.parametrize("tag", ["", ',"type":"image"'])
def test_object_that_was_read_without_its_tag_is_written_with_it(tag: str) -> None:
    block = read(f'{{"text":"hi"{tag}}}', v1.TextContent)
    assert unstructure(block) == {"type": "text", "text": "hi"}


def test_dict_may_replace_an_object() -> None:
    request = v1.PromptRequest(session_id="s", prompt=[])
    request.prompt.append({"type": "text", "text": "t"})  # type: ignore[arg-type]
    assert unstructure(request)["prompt"] == [{"type": "text", "text": "t"}]


def test_other_values_in_place_of_an_object_are_refused() -> None:
    request = v1.PromptRequest(session_id="s", prompt=["t"])  # type: ignore[list-item]
    with pytest.raises(TypeError, match="cannot write a str where an ACP object belongs"):
        dumps(request)


def test_copies_keep_unknown_members() -> None:
    block = read('{"type":"text","x":1e400,"text":"t"}', v1.TextContent)
    for copied in (copy.deepcopy(block), pickle.loads(pickle.dumps(block)), attrs.evolve(block)):
        assert dumps(copied) == dumps(block)
    assert dumps(attrs.evolve(block, text="u")) == b'{"type":"text","x":1e400,"text":"u"}'


def test_repr_is_short_and_shows_no_secrets() -> None:
    server = v1.McpServerStdio(
        name="m", command="c", args=[], env=[v1.EnvVariable(name="TOKEN", value="hush")]
    )
    assert repr(server) == (
        "McpServerStdio(name='m', command='c', args=[], env=[EnvVariable(name='TOKEN', value=...)])"
    )


def test_cattrs_converter_reads_types_inside_other_classes() -> None:
    @attrs.define
    class Options:
        first: v1.TextContent
        blocks: list[v1.ContentBlock]

    made = converter().structure(
        {"first": {"text": "a"}, "blocks": [{"type": "text", "text": "b"}]}, Options
    )
    assert made == Options(first=v1.text("a"), blocks=[v1.text("b")])
    assert converter().unstructure(made)["blocks"] == [{"type": "text", "text": "b"}]


def test_classes_outside_the_schema_are_refused() -> None:
    with pytest.raises(TypeError, match="not one of the schema's types"):
        structure(b"{}", int)
