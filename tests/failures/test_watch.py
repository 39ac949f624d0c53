"""Hangs: request timeouts, and the ladder for a turn that is silent, on given times. Pure."""

import json

import pytest

from conductor.components.watch import LADDER, NEVER, Stalled, TimedOut, Watch
from conductor.connection.calls import Call


class Nobody:
    def respond(self, call, result, error):
        raise AssertionError("nobody asked")


def call(method="session/prompt"):
    return Call(method, Nobody())


def params(session="s", **update):
    if not update:
        return json.dumps({"sessionId": session}).encode()
    return json.dumps({"sessionId": session, "update": update}).encode()


def prompting(watch, now=0.0, session="s"):
    prompt = call()
    watch.asked(prompt, prompt.method, params(session), now)
    return prompt


def say(watch, now, session="s", **update):
    update = update or {"sessionUpdate": "agent_message_chunk", "content": {"text": "x"}}
    return watch.heard("session/update", params(session, **update), now)


def rungs(watch, *times):
    return [[due.rung for due in watch.due(now)] for now in times]


# -- request_timeout -------------------------------------------------------------------------------


def test_a_request_that_takes_too_long_is_reported_once():
    watch = Watch({"session/new": 5.0})
    late = call("session/new")

    assert watch.asked(late, "session/new", None, 10.0) == 15.0
    assert watch.next_deadline() == 15.0
    assert watch.due(14.9) == []
    assert watch.due(15.0) == [TimedOut(late, 5.0)]
    assert (watch.due(99.0), watch.next_deadline()) == ([], NEVER)


def test_a_prompt_that_takes_too_long_names_its_session():
    watch = Watch({"session/prompt": 5.0})
    late = call("session/prompt")

    watch.asked(late, "session/prompt", b'{"sessionId":"s1"}', 0.0)

    assert watch.due(5.0) == [TimedOut(late, 5.0, "s1")]


def test_methods_without_a_timeout_may_take_for_ever():
    watch = Watch({"session/new": 5.0})

    assert watch.asked(call("session/load"), "session/load", None, 0.0) == NEVER
    assert watch.due(1e9) == []


def test_a_request_that_is_answered_in_time_is_forgotten():
    watch = Watch({"session/new": 5.0})
    answered = call("session/new")
    watch.asked(answered, "session/new", None, 0.0)

    watch.answered(answered)

    assert (watch.next_deadline(), watch.due(9.0)) == (NEVER, [])


# -- the ladder ------------------------------------------------------------------------------------


def test_nothing_stalls_unless_it_is_asked_for():
    watch = Watch()
    prompting(watch)

    assert (watch.next_deadline(), watch.due(1e9)) == (NEVER, [])


@pytest.mark.parametrize("highest", LADDER)
def test_a_silent_turn_climbs_as_high_as_it_may(highest):
    watch = Watch({}, 10.0, highest)
    prompt = prompting(watch)
    allowed = list(LADDER[: LADDER.index(highest) + 1])

    assert watch.due(9.9) == []
    assert watch.due(10.0) == [Stalled("s", (prompt,), "report", 10.0)]
    assert watch.due(10.0) == []
    found = [rung for each in rungs(watch, 20.0, 30.0, 40.0, 50.0, 60.0) for rung in each]
    assert ["report", *found] == allowed
    assert watch.next_deadline() == NEVER


def test_whatever_is_heard_of_the_session_begins_the_silence_anew():
    watch = Watch({}, 10.0, "restart")
    prompting(watch)
    assert rungs(watch, 10.0, 20.0) == [["report"], ["cancel"]]

    assert say(watch, 25.0) == 35.0

    assert rungs(watch, 34.9, 35.0, 45.0) == [[], ["report"], ["cancel"]]


def test_each_session_is_silent_for_itself():
    watch = Watch({}, 10.0)
    prompting(watch, session="a")
    prompting(watch, session="b")
    say(watch, 8.0, session="b")

    assert [due.session for due in watch.due(10.0)] == ["a"]
    assert watch.next_deadline() == 18.0


def test_what_is_said_of_no_turn_is_no_sign_of_life():
    watch = Watch({}, 10.0)
    prompting(watch)

    say(watch, 9.0, session="other")
    watch.heard("_extension", b"{}", 9.5)

    assert rungs(watch, 10.0) == [["report"]]


def test_a_turn_that_ended_is_not_silent():
    watch = Watch({}, 10.0)
    prompt = prompting(watch)

    watch.answered(prompt)

    assert (watch.next_deadline(), watch.due(99.0)) == (NEVER, [])


@pytest.mark.parametrize("status", ["pending", "in_progress", None])
def test_silence_while_a_tool_runs_is_no_hang(status):
    """A tool call that says nothing of its status is pending (schema: its default)."""
    watch = Watch({}, 10.0)
    prompting(watch)
    extra = {} if status is None else {"status": status}
    say(watch, 1.0, sessionUpdate="tool_call", toolCallId="t", **extra)
    assert (watch.due(1e6), watch.next_deadline()) == ([], NEVER)

    say(watch, 2e6, sessionUpdate="tool_call_update", toolCallId="t", title="still at it")
    assert watch.due(3e6) == []

    say(watch, 4e6, sessionUpdate="tool_call_update", toolCallId="t", status="completed")
    assert rungs(watch, 4e6 + 9.0, 4e6 + 10.0) == [[], ["report"]]


def test_a_tool_that_is_only_ever_updated_runs_too():
    """Some agents send no `tool_call` for what needs a permission."""
    watch = Watch({}, 10.0)
    prompting(watch)
    say(watch, 1.0, sessionUpdate="tool_call_update", toolCallId="t", status="in_progress")

    assert watch.due(1e6) == []


def test_two_tools_are_awaited():
    watch = Watch({}, 10.0)
    prompting(watch)
    for tool in ("t", "u"):
        say(watch, 1.0, sessionUpdate="tool_call", toolCallId=tool)
    say(watch, 2.0, sessionUpdate="tool_call_update", toolCallId="t", status="failed")

    assert watch.due(1e6) == []


@pytest.mark.parametrize("asked", [params(), b'{"connectionId":"c"}', None])
def test_silence_while_the_agent_waits_for_an_answer_is_no_hang(asked):
    """A permission names its session; a message to an MCP server does not."""
    watch = Watch({}, 10.0)
    prompting(watch)
    question = call("session/request_permission")
    watch.asks(question, asked, 5.0)
    assert (watch.due(1e6), watch.next_deadline()) == ([], NEVER)

    assert watch.told(question, 2e6) == 2e6 + 10.0

    assert rungs(watch, 2e6 + 9.0, 2e6 + 10.0) == [[], ["report"]]


def test_in_version_2_a_turn_lasts_until_the_agent_is_idle():
    watch = Watch({}, 10.0)
    prompt = prompting(watch)
    say(watch, 0.5, sessionUpdate="state_update", state="running")
    watch.answered(prompt)

    assert watch.due(10.5) == [Stalled("s", (), "report", 10.0)]
    say(watch, 11.0, sessionUpdate="state_update", state="idle", stopReason="end_turn")
    assert (watch.due(1e6), watch.next_deadline()) == ([], NEVER)


def test_in_version_2_a_person_may_take_their_time():
    watch = Watch({}, 10.0)
    say(watch, 0.0, sessionUpdate="state_update", state="running")
    say(watch, 1.0, sessionUpdate="state_update", state="requires_action")

    assert watch.due(1e6) == []


def test_a_component_that_is_gone_is_not_watched():
    watch = Watch({"session/prompt": 5.0}, 10.0)
    prompt = prompting(watch)

    watch.forget()
    watch.answered(prompt)

    assert (watch.due(1e6), watch.next_deadline()) == ([], NEVER)


@pytest.mark.parametrize("junk", [None, b"[]", b'{"update":3}', b'"\\ud800"'])
def test_updates_that_are_none_do_no_harm(junk):
    watch = Watch({}, 10.0)
    prompting(watch)

    assert watch.heard("session/update", junk, 1.0) == NEVER


@pytest.mark.parametrize(("highest", "climbs"), [("cancel_request", False), ("restart", True)])
def test_a_turn_whose_component_is_being_killed_is_not_given_back(highest, climbs):
    """The last rung has been reached: nothing else may end the turn before the process is gone."""
    watch = Watch({}, 1.0, highest)
    watch.asked(Call("session/prompt", Nobody()), "session/prompt", b'{"sessionId":"s"}', 0.0)

    for now in range(1, 10):
        watch.due(float(now))

    assert watch.is_climbing("s") is climbs
