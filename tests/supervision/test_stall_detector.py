"""The escalation for a silent turn, on given times. Pure."""

import pytest
from routing.test_link import Bench
from support.raw_json import dumps
from support.seen_port import SeenPort

from conductor.acp.turns import Turns
from conductor.jsonrpc.in_flight import InFlightRequest
from conductor.routing.port import connect_ports
from conductor.supervision.stall_detector import (
    ESCALATION,
    NEVER,
    StallDetector,
    StalledTurn,
    StallMonitor,
)


class Originator:
    def respond(self, call, result, error):
        raise AssertionError("nobody asked")


def call(method="session/prompt"):
    return InFlightRequest(method, Originator())


def params(session="s", **update):
    if not update:
        return dumps({"sessionId": session})
    return dumps({"sessionId": session, "update": update})


def watching(*args, version=2, **more):
    """A detector with the turns of a component."""
    return StallDetector(Turns(version), *args, **more)


def prompting(detector, now=0.0, session="s"):
    prompt = call()
    prompt.session = session
    detector.turns.of(session).prompt_sent(prompt, now)
    detector.request_to(prompt, now)
    return prompt


def say(detector, now, session="s", **update):
    update = update or {"sessionUpdate": "agent_message_chunk", "content": {"text": "x"}}
    if "state" in update and (turns := detector.turns.of_agent(session)) is not None:
        turns.take(update, now)
    return detector.notification_from("session/update", params(session, **update), now)


def answer(detector, prompt, *, accepted=True):
    turns = detector.turns.of(prompt.session)
    turns.prompt_answered(prompt, 0.0, accepted=accepted)
    detector.response_from(prompt)


def actions_at(detector, *times):
    return [[overdue.action for overdue in detector.overdue(now)] for now in times]


def test_nothing_stalls_unless_it_is_asked_for():
    detector = watching()
    prompting(detector)

    assert (detector.next_deadline(), detector.overdue(1e9)) == (NEVER, [])


@pytest.mark.parametrize("max_action", ESCALATION)
def test_a_silent_turn_is_escalated_up_to_the_configured_step(max_action):
    detector = watching(10.0, max_action)
    prompt = prompting(detector)
    allowed = list(ESCALATION[: ESCALATION.index(max_action) + 1])

    assert detector.overdue(9.9) == []
    assert detector.overdue(10.0) == [StalledTurn("s", (prompt,), "report", 10.0)]
    assert detector.overdue(10.0) == []
    found = [
        action for each in actions_at(detector, 20.0, 30.0, 40.0, 50.0, 60.0) for action in each
    ]
    assert ["report", *found] == allowed
    assert detector.next_deadline() == NEVER


def test_any_message_of_the_session_restarts_the_silence_timer():
    detector = watching(10.0, "restart")
    prompting(detector)
    assert actions_at(detector, 10.0, 20.0) == [["report"], ["cancel"]]

    assert say(detector, 25.0) == 35.0

    assert actions_at(detector, 34.9, 35.0, 45.0) == [[], ["report"], ["cancel"]]


def test_silence_is_measured_per_session():
    detector = watching(10.0)
    prompting(detector, session="a")
    prompting(detector, session="b")
    say(detector, 8.0, session="b")

    assert [overdue.session for overdue in detector.overdue(10.0)] == ["a"]
    assert detector.next_deadline() == 18.0


def test_messages_outside_of_a_turn_do_not_restart_the_silence_timer():
    detector = watching(10.0)
    prompting(detector)

    say(detector, 9.0, session="other")
    detector.notification_from("_extension", b"{}", 9.5)

    assert actions_at(detector, 10.0) == [["report"]]


@pytest.mark.parametrize(("version", "accepted"), [(1, True), (1, False), (2, False)])
def test_a_turn_that_ended_is_not_silent(version, accepted):
    detector = watching(10.0, version=version)
    prompt = prompting(detector)

    answer(detector, prompt, accepted=accepted)

    assert (detector.next_deadline(), detector.overdue(99.0)) == (NEVER, [])


@pytest.mark.parametrize("status", ["pending", "in_progress", None])
def test_silence_while_a_tool_runs_is_no_hang(status):
    """A tool call that says nothing of its status is pending (schema: its default)."""
    detector = watching(10.0)
    prompting(detector)
    extra = {} if status is None else {"status": status}
    say(detector, 1.0, sessionUpdate="tool_call", toolCallId="t", **extra)
    assert (detector.overdue(1e6), detector.next_deadline()) == ([], NEVER)

    say(detector, 2e6, sessionUpdate="tool_call_update", toolCallId="t", title="still at it")
    assert detector.overdue(3e6) == []

    say(detector, 4e6, sessionUpdate="tool_call_update", toolCallId="t", status="completed")
    assert actions_at(detector, 4e6 + 9.0, 4e6 + 10.0) == [[], ["report"]]


def test_a_tool_that_is_only_ever_updated_runs_too():
    """Some agents send no `tool_call` for what needs a permission."""
    detector = watching(10.0)
    prompting(detector)
    say(detector, 1.0, sessionUpdate="tool_call_update", toolCallId="t", status="in_progress")

    assert detector.overdue(1e6) == []


def test_two_tools_are_awaited():
    detector = watching(10.0)
    prompting(detector)
    for tool in ("t", "u"):
        say(detector, 1.0, sessionUpdate="tool_call", toolCallId=tool)
    say(detector, 2.0, sessionUpdate="tool_call_update", toolCallId="t", status="failed")

    assert detector.overdue(1e6) == []


@pytest.mark.parametrize("request_to", [params(), b'{"connectionId":"c"}', None])
def test_silence_while_the_agent_waits_for_an_answer_is_no_hang(request_to):
    """A permission names its session; a message to an MCP server does not."""
    detector = watching(10.0)
    prompting(detector)
    question = call("session/request_permission")
    detector.request_from(question, request_to, 5.0)
    assert (detector.overdue(1e6), detector.next_deadline()) == ([], NEVER)

    assert detector.response_to(question, 2e6) == 2e6 + 10.0

    assert actions_at(detector, 2e6 + 9.0, 2e6 + 10.0) == [[], ["report"]]


def test_in_version_2_a_turn_lasts_until_the_agent_is_idle():
    detector = watching(10.0)
    prompt = prompting(detector)
    say(detector, 0.5, sessionUpdate="state_update", state="running")
    answer(detector, prompt)

    assert detector.overdue(10.5) == [StalledTurn("s", (), "report", 10.0)]
    say(detector, 11.0, sessionUpdate="state_update", state="idle", stopReason="end_turn")
    assert (detector.overdue(1e6), detector.next_deadline()) == ([], NEVER)


def test_in_version_2_a_turn_begins_with_its_prompt():
    """The agent accepts it, and never reports `running`."""
    detector = watching(10.0)
    prompt = prompting(detector)
    answer(detector, prompt)

    assert detector.overdue(10.0) == [StalledTurn("s", (), "report", 10.0)]
    say(detector, 11.0, sessionUpdate="state_update", state="idle", stopReason="end_turn")
    assert (detector.overdue(1e6), detector.next_deadline()) == ([], NEVER)


def test_in_version_2_a_turn_may_end_before_its_prompt_is_answered():
    detector = watching(10.0)
    prompt = prompting(detector)
    say(detector, 0.5, sessionUpdate="state_update", state="running")
    say(detector, 1.0, sessionUpdate="state_update", state="idle", stopReason="end_turn")
    answer(detector, prompt)

    assert (detector.overdue(1e6), detector.next_deadline()) == ([], NEVER)


@pytest.mark.parametrize("state", ["requires_action", "unknown"])
def test_in_version_2_a_turn_that_waits_for_the_user_or_is_not_known_may_be_silent(state):
    detector = watching(10.0)
    say(detector, 0.0, sessionUpdate="state_update", state="running")
    say(detector, 1.0, sessionUpdate="state_update", state=state)
    assert (detector.overdue(1e6), detector.next_deadline()) == ([], NEVER)

    say(detector, 2e6, sessionUpdate="state_update", state="running")
    assert actions_at(detector, 2e6 + 9.0, 2e6 + 10.0) == [[], ["report"]]


def test_in_version_2_an_idle_state_between_answer_and_running_ends_nothing():
    """It tells of work in the background."""
    detector = watching(10.0)
    say(detector, 0.0, sessionUpdate="state_update", state="running")
    say(detector, 0.0, sessionUpdate="state_update", state="idle")
    answer(detector, prompting(detector))
    say(detector, 1.0, sessionUpdate="state_update", state="idle", background=[{"id": "b"}])

    assert detector.overdue(11.0) == [StalledTurn("s", (), "report", 10.0)]


def test_a_turn_that_is_ended_in_place_of_the_agent_is_not_silent():
    detector = watching(10.0)
    prompting(detector)
    detector.turns.lost()

    assert (detector.overdue(1e6), detector.next_deadline()) == ([], NEVER)
    prompt = prompting(detector, 2e6)
    assert detector.overdue(2e6 + 10.0) == [StalledTurn("s", (prompt,), "report", 10.0)]


def test_an_ended_component_is_not_watched():
    detector = watching(10.0)
    prompt = prompting(detector)

    detector.forget()
    detector.response_from(prompt)

    assert (detector.overdue(1e6), detector.next_deadline()) == ([], NEVER)


@pytest.mark.parametrize("junk", [None, b"[]", b'{"update":3}', b'"\\ud800"'])
def test_updates_that_are_none_do_no_harm(junk):
    detector = watching(10.0)
    prompting(detector)

    assert detector.notification_from("session/update", junk, 1.0) == NEVER


@pytest.mark.parametrize(("max_action", "climbs"), [("cancel_request", False), ("restart", True)])
def test_a_turn_in_its_last_escalation_step_is_not_watched_again(max_action, climbs):
    """In the last step, only the end of the process may end the turn."""
    detector = watching(1.0, max_action)
    prompting(detector)

    for now in range(1, 10):
        detector.overdue(float(now))

    assert detector.is_escalating("s") is climbs


def test_what_a_subagent_does_counts_for_the_turn_of_its_parent():
    detector = watching(stall_timeout=10)
    prompting(detector)
    say(detector, 1, sessionUpdate="subagent_update", sessionId="child")
    say(detector, 9, "child", sessionUpdate="subagent_update", sessionId="grandchild")
    assert say(detector, 18, "grandchild") == 28

    say(detector, 20, "child", sessionUpdate="tool_call", toolCallId="1")
    assert detector.overdue(100) == []
    assert (
        say(detector, 100, sessionUpdate="tool_call_update", toolCallId="1", status="failed") > 1e9
    )
    ended = {"sessionUpdate": "tool_call_update", "toolCallId": "1", "status": "failed"}
    assert say(detector, 101, "child", **ended) == 111


def test_half_an_emoji_hides_no_tool_state_or_subagent():
    detector, half = watching(stall_timeout=10), {"_meta": {"\ud83d": "\ud83d"}}
    prompting(detector)
    say(detector, 1, sessionUpdate="tool_call", toolCallId="\ud83d", **half)
    assert detector.overdue(100) == []
    ended = {"sessionUpdate": "tool_call_update", "toolCallId": "\ud83d", "status": "failed"}
    assert say(detector, 101, **ended) == 111
    assert say(detector, 102, sessionUpdate="state_update", state="running", **half) == 112
    say(detector, 103, sessionUpdate="subagent_update", sessionId="child", **half)
    assert say(detector, 104, "child") == 114


def test_a_question_of_a_subagent_is_no_stall():
    detector = watching(stall_timeout=10)
    prompt = prompting(detector)
    say(detector, 0, sessionUpdate="subagent_update", sessionId="child")
    asked = call("session/request_permission")
    detector.request_from(asked, params("child"), 1)
    assert detector.overdue(100) == []
    assert detector.response_to(asked, 100) == 110

    answer(detector, prompt, accepted=False)
    assert say(detector, 101, "child") == NEVER
    prompting(detector, 200)
    assert say(detector, 201, "child") == NEVER  # it belongs to no open turn


def test_the_state_of_a_subagent_does_not_end_the_turn_of_its_parent():
    detector = watching(stall_timeout=10)
    say(detector, 0, sessionUpdate="state_update", state="running")
    say(detector, 1, sessionUpdate="subagent_update", sessionId="child")
    say(detector, 2, "child", sessionUpdate="state_update", state="running")
    assert say(detector, 3, "child", sessionUpdate="state_update", state="idle") == 13
    assert [each.session for each in detector.overdue(13)] == ["s"]


def test_a_component_that_invents_sessions_tool_calls_and_subagents_is_watched_in_bounded_memory():
    detector = watching(stall_timeout=10)
    prompting(detector)
    for n in range(1100):
        say(detector, 0, f"s{n}", sessionUpdate="state_update", state="running")
        say(detector, 0, sessionUpdate="tool_call", toolCallId=f"{n}", status="in_progress")
        say(detector, 0, sessionUpdate="subagent_update", sessionId=f"child {n}")
    assert len(detector.overdue(10)) == 999  # all but the prompt's session, which has tool calls

    for n in range(1000):
        say(detector, 1, sessionUpdate="tool_call_update", toolCallId=f"{n}", status="completed")
    assert say(detector, 2, "child 1099") == 12
    assert say(detector, 2, "child 99") == NEVER


async def test_a_run_of_updates_stays_one_for_what_comes_behind():
    agent, client = Bench("agent"), SeenPort()
    connect_ports(client, agent.link.plain)
    StallMonitor(StallDetector(Turns(), 5.0), {}, lambda call: None, lambda turn: None).insert(
        agent.link
    )

    agent.feed(*[{"method": "session/update", "params": {"sessionId": "s"}}] * 2)

    assert [len(each.params) for each in client.seen] == [2]


def test_long_ids_are_not_watched():
    detector, long = watching(stall_timeout=10), "x" * 1025
    prompting(detector)

    assert say(detector, 0, long, sessionUpdate="state_update", state="running") == NEVER
    say(detector, 0, sessionUpdate="subagent_update", sessionId=long)
    assert say(detector, 0, long) == NEVER
    assert say(detector, 0, sessionUpdate="tool_call", toolCallId=long, status="pending") == 10
