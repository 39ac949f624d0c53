"""The state of a session by its updates, and what is shown of its blocks."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from conductor.cli.prompt.content import FileDiff
from conductor.cli.prompt.rich_display import block
from conductor.cli.prompt.view import (
    Answer,
    MarkdownStream,
    PastPrompt,
    ShownPlanEntry,
    Thought,
    View,
)
from conductor.testing.updates import chunk

DIFF = {"type": "diff", "path": "/a", "oldText": "a", "newText": "b"}


def call(status, **members):
    kind = "tool_call" if status == "pending" else "tool_call_update"
    return {"sessionUpdate": kind, "toolCallId": "c1", "status": status, **members}


def shown(each, now=0.0):
    file = io.StringIO()
    Console(file=file, width=60).print(block(each, now))
    return [line.rstrip() for line in file.getvalue().splitlines()]


def test_an_answer_is_finished_block_by_block():
    view = View()

    assert view.apply(chunk("One.\n\nTw"), 0) == [Answer("One.\n\n")]
    assert view.apply(chunk("o"), 0) == []
    assert view.tail == Answer("Two")
    assert view.end_turn() == [Answer("Two")]
    assert view.tail is None


def test_thoughts_answers_and_prompts_are_apart():
    view = View()
    blocks = [
        *view.apply(chunk("do it", "user_message_chunk"), 0),
        *view.apply(chunk("hm", "agent_thought_chunk"), 0),
        *view.apply(chunk("yes"), 0),
        *view.end_turn(),
    ]

    assert blocks == [PastPrompt("do it"), Thought("hm"), Answer("yes")]


@pytest.mark.parametrize(("status", "mark"), [("completed", "✓"), ("cancelled", "✗")])
def test_a_tool_call_is_finished_once_with_all_that_was_said_of_it(status, mark):
    view = View()

    assert view.apply(chunk("before"), 1.0) == []
    assert view.apply(call("pending", title="Edit", kind="edit"), 2.0) == [Answer("before")]
    assert [each.title for each in view.running] == ["Edit"]
    assert view.apply(call("in_progress", content=[DIFF]), 3.0) == []
    [finished] = view.apply(call(status), 5.5)
    assert shown(finished, 100.0) == [
        f"{mark} Edit (edit)  3.5s",
        "  /a",
        "  @@ -1 +1 @@",
        "  -a",
        "  +b",
    ]
    assert view.apply(call(status), 6.0) == []
    assert view.running == []


def test_what_did_not_end_is_shown_at_the_end_of_the_turn():
    view = View()
    view.apply(call("pending", title="Sleep"), 1.0)

    assert [each.title for each in view.end_turn()] == ["Sleep"]
    assert view.running == []


def test_a_permission_request_tells_more_of_a_tool_call():
    view = View()
    view.apply(call("pending", title="Edit"), 1.0)

    known = view.merge_call({"toolCallId": "c1", "content": [{"type": "diff", "path": "/a"}]}, 2.0)

    assert (known.title, known.diffs) == ("Edit", (FileDiff("", ()),))


def test_the_plan_is_the_last_one_in_both_versions():
    view = View()
    entries = [{"content": "read", "status": "in_progress"}]

    view.apply({"sessionUpdate": "plan", "entries": entries}, 0)
    assert view.plan == [ShownPlanEntry("read", "in_progress")]
    plan = {"type": "items", "planId": "a", "entries": [{"content": "x", "status": "pending"}]}
    view.apply({"sessionUpdate": "plan_update", "plan": plan}, 0)
    view.apply({"sessionUpdate": "plan_removed", "planId": "b"}, 0)
    assert view.plan == [ShownPlanEntry("x", "pending")]
    view.apply({"sessionUpdate": "plan_removed", "planId": "a"}, 0)
    assert view.plan == ()


def test_a_message_of_version_2_is_shown_once():
    view = View()
    whole = {"sessionUpdate": "agent_message", "content": [{"type": "text", "text": "hello"}]}

    streamed = view.apply(chunk("hello", messageId="m1"), 0) + view.flush()
    assert streamed == [Answer("hello")]
    assert view.apply({**whole, "messageId": "m1"}, 0) == []
    assert view.apply({**whole, "messageId": "m2"}, 0) == [Answer("hello")]


TEXT = "# Title\n\nOne\ntwo.\n\n```python\na = 1\n\nb = 2\n```\n\n1. x\n\n   more of x\n\n2. y\n"
BLOCKS = [
    "# Title\n\n",
    "One\ntwo.\n\n",
    "```python\na = 1\n\nb = 2\n```\n\n",
    "1. x\n\n   more of x\n\n",
]


@pytest.mark.parametrize("size", [1, 7, 1000])
def test_blocks_do_not_depend_on_how_the_text_is_cut(size):
    stream = MarkdownStream()
    blocks = []
    for start in range(0, len(TEXT), size):
        blocks += stream.feed(TEXT[start : start + size])

    assert blocks == BLOCKS
    assert stream.tail == "2. y\n"


def test_a_shorter_fence_does_not_end_a_code_block():
    stream = MarkdownStream()

    assert stream.feed("````\n```\n\ninside\n````\n\nafter") == ["````\n```\n\ninside\n````\n\n"]


def test_markdown_has_one_blank_line_after_it_and_the_address_of_a_link():
    text = "# Title\n\n- a\n- [safe](https://evil.example)\n\n"

    assert shown(Answer(text)) == ["Title", "", " • a", " • safe (https://evil.example)", ""]


def test_entities_of_markdown_make_no_control_characters():
    written = "\n".join(shown(Answer("a &#27;[1m `&#x9b;31m`\n\n```\n\x1b[2J\n```\n")))

    assert [char for char in written if not char.isprintable() and char != "\n"] == []


def test_a_long_diff_of_a_tool_call_is_cut():
    new = "\n".join(map(str, range(100)))
    view = View()
    [long] = view.apply(call("completed", content=[{**DIFF, "newText": new}]), 0)

    assert shown(long)[-1] == "  … 62 more lines"
