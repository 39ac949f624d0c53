"""Which session made a call: reports of the agent, before and after the call, and none."""

from __future__ import annotations

import pytest
from support.raw_json import dumps

from bridges.call_attribution import CallAttribution, tool_title


class Clock:
    def __init__(self):
        self.later = []

    def __call__(self, seconds, then):
        self.later.append(then)


def report(session, title="notes_add", arguments=None, *, id="1", status="in_progress"):
    update = {
        "sessionUpdate": "tool_call_update",
        "toolCallId": id,
        "title": title,
        "status": status,
        "rawInput": arguments or {},
    }
    return dumps({"sessionId": session, "update": update})


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def callers(clock):
    return CallAttribution(clock)


def test_the_report_may_come_after_the_call(callers):
    found = []
    callers.ask("notes_add", {"a": 1}, found.append)
    callers.record_update(report("other", arguments={"a": 2}, id="0"))
    assert found == []
    callers.record_update(report("s", arguments={"a": 1}))
    assert found == ["s"]


def test_the_report_may_come_before_the_call(callers):
    found = []
    callers.record_update(report("s", arguments={"a": 1}))
    callers.ask("notes_add", {"a": 1}, found.append)
    assert found == ["s"]


def test_a_report_is_for_one_call(callers, clock):
    found = []
    for _ in range(3):
        callers.record_update(report("s"))  # of the same call: in progress, progress, completed
    callers.ask("notes_add", {}, found.append)
    callers.ask("notes_add", {}, found.append)
    assert found == ["s"]
    clock.later[-1]()
    assert found == ["s", None]


def test_a_call_whose_arguments_are_still_written_is_no_report(callers):
    found = []
    callers.record_update(report("s", status="pending"))
    callers.ask("notes_add", {}, found.append)
    assert found == []


def test_a_call_without_a_report_has_no_session(callers, clock):
    found = []
    callers.ask("notes_add", {}, found.append)
    clock.later[0]()
    callers.record_update(report("s"))
    assert found == [None]


def test_a_call_is_decided_when_no_further_report_is_expected(callers, clock):
    found = []
    callers.ask("notes_add", {}, found.append)
    callers.forget()
    clock.later[0]()
    assert found == [None]


@pytest.mark.parametrize(
    "raw",
    [
        None,
        b"null",
        b'{"sessionId":1,"update":{"sessionUpdate":"tool_call"}}',
        b'{"sessionId":"s","update":{"sessionUpdate":"tool_call","title":"\\ud800"}}',
        b'{"sessionId":"s","update":{"sessionUpdate":"agent_message_chunk","title":"tool_call"}}',
        b'{"a":"tool_call","update":' + b"[" * 2000 + b"]" * 2000 + b"}",
    ],
)
def test_other_updates_are_no_reports(callers, raw):
    found = []
    callers.record_update(raw)
    callers.ask("tool_call", {}, found.append)
    assert found == []


def test_reports_are_bounded(callers):
    for number in range(2000):
        callers.record_update(report("s", id=str(number)))
    assert len(callers._reports) <= 256
    assert len(callers._reported_calls) <= 256


def test_names_of_tools_are_made_as_opencode_makes_them():
    assert tool_title("my notes", "add.one") == "my_notes_add_one"
    assert tool_title("notes-2", "add") == "notes-2_add"
