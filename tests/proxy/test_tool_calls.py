"""Tool calls of one session, merged from the messages about it."""

from __future__ import annotations

import pytest

from conductor.proxy.tool_calls import ToolCallTable


def updated(table, form="tool_call_update", **members):
    """The title and the status of the call, whether it starts, and whether it ends."""
    call, starts, ends = table.update({"sessionUpdate": form, "toolCallId": "c", **members})
    table.forget_ended(call)
    return call.title, call.status, starts, ends


def test_an_unfinished_call_ends_with_its_turn_and_is_kept_for_later_updates():
    table = ToolCallTable()
    assert updated(table, "tool_call", title="Build") == ("Build", "pending", True, False)

    assert [(each.title, each.status) for each in table.turn_ended("failed")] == [
        ("Build", "failed")
    ]

    assert [(id, each.status) for id, each in table.open.items()] == [("c", "pending")]
    assert updated(table, status="in_progress") == ("Build", "in_progress", False, False)
    assert updated(table, status="completed") == ("Build", "completed", False, False)
    assert table.open == {}


def test_after_the_end_of_a_turn_the_id_of_an_unfinished_call_may_be_that_of_another():
    table = ToolCallTable()
    updated(table, "tool_call", title="Build", rawInput={"command": "make"})

    table.turn_ended("failed")

    assert updated(table, "tool_call", title="Test") == ("Test", "pending", True, False)
    assert table.open["c"].raw_input is None
    assert updated(table, status="completed") == ("Test", "completed", False, True)


def test_within_a_turn_a_call_that_is_announced_again_does_not_start_again():
    table = ToolCallTable()
    updated(table, "tool_call", title="Build")

    assert updated(table, "tool_call", title="Test") == ("Test", "pending", False, False)


def test_a_call_that_goes_on_in_the_next_turn_is_one_of_that_turn():
    table = ToolCallTable()
    updated(table, "tool_call", title="Build")
    table.turn_ended("failed")
    assert table.turn_ended("failed") == []
    updated(table, status="in_progress")

    assert updated(table, "tool_call", title="Test") == ("Test", "pending", False, False)
    assert [each.title for each in table.turn_ended("failed")] == ["Test"]


EXECUTE = {"kind": "execute", "title": "x"}
RUNS = {"command": "make", "description": "Build it"}


@pytest.mark.parametrize(
    ("updates", "start"),
    [
        # Claude 0.101: the input grows member by member; no status says that the call runs.
        ([{"rawInput": {}, "status": "pending", **EXECUTE}, {"rawInput": RUNS}], 1),
        (
            [
                {"rawInput": {}, "status": "pending", **EXECUTE},
                {"rawInput": {"description": "Build it"}},
                {"rawInput": RUNS},
            ],
            2,
        ),
        # Claude: of a file that is written, the path comes first, the diff last.
        (
            [
                {"rawInput": {}, "status": "pending", "kind": "edit"},
                {"rawInput": {"file_path": "/a"}},
                {"rawInput": {"file_path": "/a"}, "content": [{"type": "diff", "path": "/a"}]},
            ],
            2,
        ),
        # Claude: a tool without arguments.
        ([{"rawInput": {}, "status": "pending"}, {"rawInput": {}, "title": "docs/list"}], 1),
        # opencode 1.18: the directory of the command comes before the command.
        (
            [
                {"rawInput": {"cwd": "/work"}, "status": "pending", **EXECUTE},
                {"rawInput": {"cwd": "/work", **RUNS}, "status": "in_progress"},
            ],
            1,
        ),
        # pi 0.0.34: the text of the command grows letter by letter.
        (
            [
                {"rawInput": {}, "status": "pending", **EXECUTE},
                {"rawInput": {"command": "r"}, "status": "pending"},
                {"rawInput": {"command": "rm x"}, "status": "in_progress"},
            ],
            2,
        ),
        # fast-agent 0.10: the arguments come when it runs.
        ([{"status": "pending"}, {"status": "in_progress", "rawInput": {"path": "/a"}}], 1),
        # goose, vibe: all at once.
        ([{"rawInput": RUNS, "status": "pending", **EXECUTE}, {"status": "completed"}], 0),
        # An agent that says nothing of the input, nor that the call is pending.
        ([{"title": "Read a", "kind": "read"}, {"status": "completed"}], 0),
        # The input never comes.
        ([{"rawInput": {}, "status": "pending"}, {"status": "completed"}], 1),
    ],
)
def test_a_call_starts_once_when_its_input_is_known_or_it_runs(updates, start):
    table = ToolCallTable()
    forms = ["tool_call", *["tool_call_update"] * (len(updates) - 1)]

    starts = [updated(table, form, **each)[2] for form, each in zip(forms, updates, strict=True)]

    assert starts == [place == start for place in range(len(updates))]


def test_the_newest_calls_that_an_agent_never_finishes_are_kept():
    table = ToolCallTable()
    for number in range(1001):
        table.update({"sessionUpdate": "tool_call", "toolCallId": str(number)})
        table.update_asked({"toolCallId": str(number)})

    assert [(len(each), "0" in each, "1" in each) for each in (table.open, table.asked)] == [
        (1000, False, True),
        (1000, False, True),
    ]
