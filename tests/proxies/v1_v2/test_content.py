"""Content blocks and the content of tool calls that version 1 does not have."""

from __future__ import annotations

import pytest

from proxies.v1_v2.content import (
    convert_block,
    convert_blocks,
    tool_content_to_v1,
    tool_content_to_v2,
)

VIDEO = {"type": "video", "uri": "file:///a.mp4", "data": [1]}
SHOWN = {
    "type": "text",
    "text": "file:///a.mp4",
    "_meta": {"acp-conductor/original": VIDEO},
}
KNOWN = [
    {"type": "text", "text": "a"},
    {"type": "image", "data": "", "mimeType": "image/png"},
    {"type": "audio", "data": "", "mimeType": "audio/wav"},
    {"type": "resource_link", "uri": "file:///a", "name": "a"},
    {"type": "resource", "resource": {"uri": "file:///a", "text": "a"}},
]


def in_call(block):
    return {"type": "content", "content": block}


def to_v1(item):
    return tool_content_to_v1(item, lambda id: f"terminal {id}")


@pytest.mark.parametrize("block", KNOWN, ids=lambda block: block["type"])
@pytest.mark.parametrize("version", [1, 2])
def test_a_block_that_both_versions_have_is_the_same(block, version):
    assert convert_blocks([block], version) == [block]


def test_a_block_of_another_type_is_a_text_in_version_1_and_itself_on_the_way_back():
    assert convert_block(VIDEO, 1) == SHOWN
    assert convert_block(SHOWN, 2) == VIDEO
    assert convert_blocks([VIDEO], 1) == [SHOWN]


def test_what_is_kept_for_the_way_back_and_is_no_block_is_not_used():
    block = {**SHOWN, "_meta": {"acp-conductor/original": {"status": "done"}}}
    assert convert_block(block, 2) == block


def test_roles_that_version_1_does_not_have_are_left_out():
    block = {**KNOWN[0], "annotations": {"audience": ["user", "auditor"], "priority": 1}}
    known = {**KNOWN[0], "annotations": {"audience": ["user"], "priority": 1}}
    assert convert_block(block, 1) == known


def test_a_block_in_a_tool_call_is_converted_both_ways():
    assert to_v1(in_call(VIDEO)) == [in_call(SHOWN)]
    assert tool_content_to_v2(in_call(SHOWN)) == in_call(VIDEO)


def test_an_item_of_another_type_and_a_terminal_are_texts_in_version_1():
    assert to_v1(VIDEO) == [in_call(SHOWN)]
    assert to_v1({"type": "terminal", "terminalId": "t"}) == [
        in_call({"type": "text", "text": "terminal t"})
    ]


def test_a_diff_has_the_form_of_each_version():
    diff = {"type": "diff", "path": "/a", "oldText": "a\n", "newText": "b\n"}
    there = tool_content_to_v2(diff)
    assert there["changes"] == [{"operation": "modify", "path": "/a", "fileType": "text"}]
    assert to_v1(there) == [diff]
