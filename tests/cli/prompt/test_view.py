"""The state of a session by its updates."""

from __future__ import annotations

from conductor.cli.prompt.content import FileDiff
from conductor.cli.prompt.view import (
    Answer,
    Note,
    PastPrompt,
    ShownCall,
    ShownPlanEntry,
    Thought,
    View,
)
from conductor.testing.updates import chunk


def call(status, **members):
    kind = "tool_call" if status == "pending" else "tool_call_update"
    return {"sessionUpdate": kind, "toolCallId": "c1", "status": status, **members}


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


def test_a_tool_call_is_finished_once_with_all_that_was_said_of_it():
    view = View()
    diff = {"type": "diff", "path": "/a", "oldText": "a", "newText": "b"}

    assert view.apply(chunk("before"), 1.0) == []
    assert view.apply(call("pending", title="Edit", kind="edit"), 2.0) == [Answer("before")]
    assert [each.title for each in view.running] == ["Edit"]
    assert view.apply(call("in_progress", content=[diff]), 3.0) == []
    finished = ShownCall(
        "c1", "Edit", "edit", "completed", 2.0, 5.5, (FileDiff("/a", ("@@ -1 +1 @@", "-a", "+b")),)
    )
    assert view.apply(call("completed"), 5.5) == [finished]
    assert finished.seconds(100.0) == 3.5
    assert view.apply(call("completed"), 6.0) == []
    assert view.running == []


def test_a_cancelled_tool_call_is_finished():
    view = View()
    view.apply(call("pending", title="Sleep"), 1.0)

    (shown,) = view.apply(call("cancelled"), 2.0)
    assert (shown.status, shown.ended, view.running) == ("cancelled", 2.0, [])


def test_what_did_not_end_is_shown_at_the_end_of_the_turn():
    view = View()
    view.apply(call("pending", title="Sleep"), 1.0)

    assert view.end_turn() == [ShownCall("c1", "Sleep", began=1.0)]
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
    assert view.plan == (ShownPlanEntry("read", "in_progress"),)
    view.apply({"sessionUpdate": "plan_update", "plan": {"type": "items", "entries": []}}, 0)
    assert view.plan == ()


def test_the_removal_of_another_plan_leaves_the_one_that_is_shown():
    view = View()
    plan = {"type": "items", "planId": "a", "entries": [{"content": "x", "status": "pending"}]}
    view.apply({"sessionUpdate": "plan_update", "plan": plan}, 0)

    view.apply({"sessionUpdate": "plan_removed", "planId": "b"}, 0)
    assert view.plan == (ShownPlanEntry("x", "pending"),)
    view.apply({"sessionUpdate": "plan_removed", "planId": "a"}, 0)
    assert view.plan == ()


def test_a_message_of_version_2_is_shown_once():
    view = View()
    whole = {"sessionUpdate": "agent_message", "content": [{"type": "text", "text": "hello"}]}

    streamed = view.apply(chunk("hello", messageId="m1"), 0) + view.flush()
    assert streamed == [Answer("hello")]
    assert view.apply({**whole, "messageId": "m1"}, 0) == []
    assert view.apply({**whole, "messageId": "m2"}, 0) == [Answer("hello")]


def test_slash_commands_are_kept():
    view = View()
    commands = [{"name": "plan", "description": "Make a plan"}, {"name": 3}, "odd"]

    view.apply({"sessionUpdate": "available_commands_update", "availableCommands": commands}, 0)

    assert view.commands == (("plan", "Make a plan"),)


def test_odd_updates_do_no_harm():
    view = View()
    odd = [
        {"sessionUpdate": "plan", "entries": "odd"},
        {"sessionUpdate": "tool_call_update", "content": ["odd", None, {"type": "content"}]},
        {"sessionUpdate": "agent_message", "content": "odd"},
        {"sessionUpdate": "agent_message_chunk", "content": ["odd"]},
        {"sessionUpdate": "available_commands_update"},
        {"sessionUpdate": "_of_an_extension"},
        {},
    ]

    assert [block for each in odd for block in view.apply(each, 0)] == []


def test_a_notice_is_a_line():
    notice = {"sessionUpdate": "notice", "severity": "warning", "title": "slow", "description": "x"}

    assert View().apply(notice, 0) == [Note("warning: slow; x")]
