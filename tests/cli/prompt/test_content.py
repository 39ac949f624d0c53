"""Text and diffs in both versions of the protocol."""

from __future__ import annotations

from conductor.cli.prompt.content import (
    FileDiff,
    content_text,
    diffs_of,
    raw_input_lines,
    tool_call_of,
)


def test_a_diff_of_version_1_is_made_from_the_texts():
    item = {"type": "diff", "path": "/a.py", "oldText": "a\nb\n", "newText": "a\nc\n"}

    assert diffs_of([item]) == (FileDiff("/a.py", ("@@ -1,2 +1,2 @@", " a", "-b", "+c")),)


def test_large_files_are_not_compared():
    old, new = "a\n" * 3000, "b\n" * 3001

    (diff,) = diffs_of([{"type": "diff", "path": "/a", "oldText": old, "newText": new}])

    assert diff.lines == ("@@ 3000 lines, 3001 after the change: too many to compare @@",)


def test_a_diff_of_version_2_has_its_patch():
    patch = "diff --git /a /a\nindex 1..2\n--- /a\n+++ /a\n@@ -1 +1 @@\n-a\n+b\n"
    item = {
        "type": "diff",
        "changes": [{"operation": "modify", "path": "/a"}],
        "patch": {"format": "git_patch", "text": patch},
    }

    assert diffs_of([item]) == (FileDiff("modify /a", ("@@ -1 +1 @@", "-a", "+b")),)


def test_permission_requests_are_about_a_tool_call_or_a_command():
    call = {"toolCallId": "1", "title": "Edit"}

    assert tool_call_of({"toolCall": call}) == call
    assert tool_call_of({"subject": {"type": "tool_call", "toolCall": call}}) == call
    assert tool_call_of({"subject": {"type": "command", "command": "ls"}}) == {
        "rawInput": {"command": "ls"}
    }


def test_content_that_is_no_text_is_named():
    assert content_text({"type": "image", "data": ""}) == "[image]"
    assert content_text({"type": "resource_link", "uri": "file:///a"}) == "[file:///a]"


def test_of_a_long_input_begin_and_end_are_shown():
    text = "".join(raw_input_lines("a" * 90_000 + "z"))

    assert text.startswith('"aaaa')
    assert text.endswith('aaaz"')
    assert "86003 more characters" in text
