"""Which message a log event is about, that no handler has logged."""

from __future__ import annotations

import pytest
from support.trace_records import TraceScript

from conductor.tracing.links import LogSubjects

PROMPT = "session/prompt"


def script_with_open_requests():
    """Two prompts on both hops, and a request of another method, without answers."""
    script = TraceScript()
    for session in ("a", "b"):
        script.request("client>notes", PROMPT, {"sessionId": session})  # 1, 3
        script.request("notes>agent", PROMPT, {"sessionId": session})  # 2, 4
    script.request("client>notes", "session/list", {})  # 5
    return script


def subject(script, level, component, **fields):
    """The number of the message that the event is about."""
    subjects = LogSubjects()
    script.log(level, "it took long", component=component, fields=fields)
    return [subjects.add(each) for each in script.records][-1]


@pytest.mark.parametrize(
    ("component", "fields", "number"),
    [
        ("agent", {"method": PROMPT, "session": "a"}, 2),
        ("notes", {"session": "a"}, 1),
        ("notes", {"method": "session/list"}, 5),
        ("conductor", {"session": "a", "blocked_by": "notes"}, 1),
        ("notes", {"method": PROMPT}, 3),
        ("agent", {"method": "session/list"}, None),
    ],
)
def test_an_event_is_about_the_request_that_its_component_has_not_answered(
    component, fields, number
):
    assert subject(script_with_open_requests(), "warning", component, **fields) == number


def test_an_answered_request_is_no_subject():
    script = script_with_open_requests()
    script.answer(2, {})

    assert subject(script, "error", "agent", session="a") is None


def test_an_event_that_is_no_problem_has_only_its_own_message():
    assert subject(script_with_open_requests(), "info", "agent", session="a") is None
    script = script_with_open_requests()
    script.log("info", "decided", component="notes", message=5)
    assert [LogSubjects().add(each) for each in script.records][-1] == 5
