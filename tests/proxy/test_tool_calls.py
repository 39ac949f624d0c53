"""Tool calls of one session, merged from the messages about it."""

from __future__ import annotations

from conductor.proxy.tool_calls import ToolCallTable


def updated(table, kind="tool_call_update", **members):
    """The title and the status of the call, whether it starts, and whether it is finished."""
    call, starts, ends = table.update({"sessionUpdate": kind, "toolCallId": "c", **members})
    table.forget_ended(call)
    return call.title, call.status, starts, ends


def test_an_unfinished_call_is_kept_at_the_end_of_its_turn_and_ends_with_a_later_update():
    table = ToolCallTable()
    assert updated(table, "tool_call", title="Build") == ("Build", "pending", True, False)

    table.turn_ended()

    assert list(table.open) == ["c"]
    assert updated(table, status="in_progress") == ("Build", "in_progress", False, False)
    assert updated(table, status="completed") == ("Build", "completed", False, True)
    assert table.open == {}


def test_after_the_end_of_a_turn_the_id_of_an_unfinished_call_may_be_that_of_another():
    table = ToolCallTable()
    updated(table, "tool_call", title="Build", rawInput={"command": "make"})

    table.turn_ended()

    assert updated(table, "tool_call", title="Test") == ("Test", "pending", True, False)
    assert table.open["c"].raw_input is None


def test_within_a_turn_a_call_that_is_announced_again_does_not_start_again():
    table = ToolCallTable()
    updated(table, "tool_call", title="Build")

    assert updated(table, "tool_call", title="Test") == ("Test", "pending", False, False)


def test_a_call_that_goes_on_in_the_next_turn_is_one_of_that_turn():
    table = ToolCallTable()
    updated(table, "tool_call", title="Build")
    table.turn_ended()
    updated(table, status="in_progress")

    assert updated(table, "tool_call", title="Test") == ("Test", "pending", False, False)


def test_the_newest_calls_that_an_agent_never_finishes_are_kept():
    table = ToolCallTable()
    for number in range(1001):
        table.update({"sessionUpdate": "tool_call", "toolCallId": str(number)})
        table.update_asked({"toolCallId": str(number)})

    assert [(len(each), "0" in each, "1" in each) for each in (table.open, table.asked)] == [
        (1000, False, True),
        (1000, False, True),
    ]
