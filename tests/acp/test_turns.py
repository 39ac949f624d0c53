"""When a turn runs: each row of the table, as a sequence of messages with the state after it."""

from __future__ import annotations

from typing import Any

import pytest

from conductor.acp.turns import Ended, Turns


class Hop:
    """One session of a hop; a message each second."""

    def __init__(self, version: int) -> None:
        self.hop: Turns[str] = Turns(version)
        self.turns = self.hop.of("s")
        self.now = 0.0
        self.ends: list[Any] = []

    def see(self, *messages: str) -> Hop:
        """`>p`: prompt p is sent; `p`, `p!`: its result, its error; `p=reason`: a result with a
        stop reason. `cancel`, `resume`, `resumed`, `closed`, `lost`. Others are states:
        `idle:end_turn`, `idle+` (with background work), `idle+-` (told to be none)."""
        for message in messages:
            self.now += 1.0
            end = self._see(message)
            if end is not None:
                self.ends.append((end.stop_reason, "".join(end.prompts)))
        return self

    def _see(self, message: str) -> Ended[str] | None:
        turns = self.turns
        match message:
            case "cancel":
                turns.cancel(self.now)
            case "resume":
                turns.resume_sent()
            case "resumed":
                return turns.resume_answered()
            case "closed":
                return turns.closed()
            case "lost":
                unanswered, ended = turns.lost()
                self.ends.append(("unanswered", "".join(unanswered)))
                return ended
            case _ if message[0] == ">":
                turns.prompt_sent(message[1:], self.now)
            case _ if message[1:2] in ("", "!", "="):
                reason = message[2:] if "=" in message else None
                accepted = not message.endswith("!")
                return turns.prompt_answered(
                    message[0], self.now, accepted=accepted, stop_reason=reason
                )
            case _:
                state, _, reason = message.partition(":")
                name = state.rstrip("+-")
                update: dict[str, Any] = {"sessionUpdate": "state_update", "state": name}
                if reason:
                    update["stopReason"] = reason
                if state != name:
                    update["background"] = [{"id": "b"}] if state.endswith("+") else []
                return turns.take(update, self.now)
        return None

    @property
    def prompts(self) -> str:
        return " ".join(f"{each.key} {each.progress}" for each in self.turns.prompts)


VERSION_2 = [
    # messages, work, prompts that are not finished, ends (stop reason, prompts)
    # prompt sent, answered with a result, answered with an error
    (">p", "idle", "p sent", []),
    ("running >p", "running", "p sent", []),
    (">p p", "idle", "p inserted", []),
    (">p running p", "running", "p working", []),
    (">p requires_action p", "blocked", "p working", []),
    (">p running idle:end_turn p", "idle", "", [("end_turn", ""), ("end_turn", "p")]),
    (">p p!", "idle", "", []),
    (">p running p!", "running", "", []),
    (">p p=end_turn", "idle", "", [("end_turn", "p")]),  # as in version 1
    (">p running idle:refusal p=end_turn", "idle", "", [("refusal", ""), ("refusal", "p")]),
    # running
    (">p running", "running", "p sent", []),
    (">p p running", "running", "p working", []),
    ("running running idle", "idle", "", [(None, "")]),
    # requires_action, and running after it
    (">p p running requires_action", "blocked", "p working", []),
    (">p p requires_action", "blocked", "p working", []),  # begins blocked
    (">p p running requires_action running", "running", "p working", []),
    (">p p running requires_action idle:end_turn", "idle", "", [("end_turn", "p")]),
    # idle after running, blocked or unverified
    (">p p running idle:refusal", "idle", "", [("refusal", "p")]),
    (">p p running idle", "idle", "", [(None, "p")]),
    (">p p >q running q idle:end_turn", "idle", "", [("end_turn", "pq")]),
    (">p p running >q idle:end_turn", "idle", "q sent", [("end_turn", "p")]),
    (">p p running >q idle:end_turn q", "idle", "q inserted", [("end_turn", "p")]),
    (
        ">p p running >q idle:end_turn q running idle:end_turn",
        "idle",
        "",
        [("end_turn", "p"), ("end_turn", "q")],
    ),
    (">p p running unknown idle:end_turn", "idle", "", [("end_turn", "p")]),
    (">p p unknown idle:end_turn", "idle", "", [("end_turn", "p")]),
    # idle when idle
    ("running idle:end_turn idle:end_turn idle+", "idle", "", [("end_turn", "")]),
    (">p p idle", "idle", "p inserted", []),
    (">p p idle+", "idle", "p inserted", []),
    ("running idle >p p idle:end_turn", "idle", "p inserted", [(None, "")]),
    (">p p idle:end_turn", "idle", "", [("end_turn", "p")]),  # never reports that it works
    (">p idle:end_turn p", "idle", "p inserted", []),
    (">p p >q idle:end_turn q", "idle", "q inserted", [("end_turn", "p")]),
    # unknown, and a state that the schema does not have
    (">p p running unknown", "unverified", "p working", []),
    (">p p running unknown running", "running", "p working", []),
    (">p p running paused", "running", "p working", []),
    (">p p paused", "idle", "p inserted", []),
    # session/cancel
    (">p p running cancel", "running", "p working", []),
    (">p p running cancel idle:end_turn", "idle", "", [("end_turn", "p")]),
    ("running idle >p p cancel idle:cancelled", "idle", "", [(None, ""), ("cancelled", "p")]),
    ("running idle >p p cancel idle+", "idle", "p inserted", [(None, "")]),
    (
        "running idle >p p >q cancel idle:cancelled",
        "idle",
        "q sent",
        [(None, ""), ("cancelled", "p")],
    ),
    # session/close
    (">p p running+ >q closed", "idle", "q sent", [(None, "p")]),
    (">p p closed", "idle", "", [(None, "p")]),
    ("running idle+ closed", "idle", "", [(None, "")]),
    # session/resume: replayed states and the snapshot
    ("resume running idle running idle resumed", "idle", "", []),
    ("resume running idle running resumed", "running", "", []),
    ("resume running resumed idle:end_turn", "idle", "", [("end_turn", "")]),
    (">p p running resume running resumed", "running", "p working", []),
    (">p p running resume idle resumed", "idle", "", [(None, "p")]),
    (">p p running resume resumed", "running", "p working", []),  # the answer alone is no idle
    (">p resume running idle resumed p", "idle", "p inserted", []),
    (">p resume running resumed idle p", "idle", "p inserted", [(None, "")]),
    # connection or process lost
    (">p lost", "idle", "", [("unanswered", "p")]),
    (">p p lost", "idle", "", [("unanswered", ""), ("error", "p")]),
    (">p p running >q lost", "idle", "", [("unanswered", "q"), ("error", "p")]),
    (">p p idle+ lost", "idle", "", [("unanswered", ""), ("error", "p")]),
    ("running idle lost", "idle", "", [(None, ""), ("unanswered", "")]),
]


@pytest.mark.parametrize(("messages", "work", "prompts", "ends"), VERSION_2)
def test_work_prompts_and_ends_in_version_2(messages, work, prompts, ends):
    hop = Hop(2).see(*messages.split())

    assert (hop.turns.work, hop.prompts, hop.ends) == (work, prompts, ends)


VERSION_1 = [
    (">p", "p sent", []),
    (">p p=refusal", "", [("refusal", "p")]),
    (">p p!", "", [(None, "p")]),
    (">p >q p=end_turn", "q sent", [("end_turn", "p")]),
    (">p >q cancel q=cancelled", "p sent", [("cancelled", "q")]),
    (">p running idle:end_turn", "p sent", []),  # there are no states
    ("running", "", []),
    (">p closed", "p sent", []),
    (">p lost p!", "", [("unanswered", "p")]),
]


@pytest.mark.parametrize(("messages", "prompts", "ends"), VERSION_1)
def test_a_turn_of_version_1_is_its_request(messages, prompts, ends):
    hop = Hop(1).see(*messages.split())

    assert (hop.turns.work, hop.prompts, hop.ends) == ("idle", prompts, ends)
    assert not hop.turns.is_underway


@pytest.mark.parametrize(
    ("messages", "since", "by"),
    [
        ("running", 1, None),  # by the agent
        (">p p running", 3, "p"),
        (">p running", 2, None),
        (">p running p", 2, "p"),
        ("running >p p", 1, None),
        (">p p running running requires_action running", 3, "p"),
        (">p p running unknown running", 3, "p"),
        ("unknown unknown running", 3, None),
        ("running unknown unknown running", 1, None),
        ("running resume idle running resumed", 1, None),
        ("resume running idle running resumed", 4, None),
        ("running idle", None, None),
        ("running idle running", 3, None),
    ],
)
def test_since_when_and_for_whom_work_runs(messages, since, by):
    turns = Hop(2).see(*messages.split()).turns

    assert (turns.since, turns.by) == (since, by)


@pytest.mark.parametrize(
    ("messages", "work", "prompts", "all"),
    [
        (">p p running cancel", 4, {"p": 4}, True),
        (">p p running cancel cancel", 4, {"p": 4}, True),
        ("running cancel >p p", 2, {"p": None}, False),  # a later prompt
        (">p cancel", None, {"p": 2}, True),
        (">p cancel running", 2, {"p": 2}, True),
        (">p p cancel running", 3, {"p": 3}, True),
        (">p p cancel", None, {"p": 3}, True),
        (">p p running >q cancel idle:cancelled", None, {"q": 5}, True),
        ("running idle+ cancel", None, {}, False),  # work in the background
        ("running cancel idle running", None, {}, False),
        ("running cancel unknown", 2, {}, True),
        ("running cancel resume idle running resumed", 2, {}, True),
        ("cancel running", None, {}, False),
    ],
)
def test_what_a_cancellation_cancels(messages, work, prompts, all):
    turns = Hop(2).see(*messages.split()).turns

    assert turns.cancelled_at == work
    assert {each.key: each.cancelled_at for each in turns.prompts} == prompts
    assert turns.is_all_cancelled == all


def test_a_cancellation_in_version_1_is_for_the_prompts_that_are_open():
    hop = Hop(1).see(">p", ">q", "cancel", ">r")

    assert [each.cancelled_at for each in hop.turns.prompts] == [3, 3, None]
    assert not hop.turns.is_all_cancelled
    assert hop.see("r=end_turn").turns.is_all_cancelled


@pytest.mark.parametrize(
    ("version", "messages", "is_cancelled"),
    [
        (1, ">p cancel p=end_turn", True),
        (1, ">p p=cancelled", False),
        (2, ">p p running cancel idle:end_turn", True),
        (2, ">p p running idle:cancelled", False),
        (2, ">p running cancel idle:end_turn", True),
    ],
)
def test_an_end_tells_of_its_cancellation_whatever_its_stop_reason(version, messages, is_cancelled):
    hop = Hop(version).see(*messages.split()[:-1])
    end = hop._see(messages.split()[-1])

    assert end is not None
    assert end.is_cancelled == is_cancelled


@pytest.mark.parametrize(
    ("messages", "running", "underway", "silent", "open"),
    [
        (">p", True, False, False, True),
        (">p p", True, True, False, True),
        ("running", True, True, False, True),
        ("requires_action", True, True, True, True),
        ("running unknown", True, True, True, True),
        ("running idle+", False, False, False, True),
        ("running idle+ idle", False, False, False, False),
        ("running idle+ idle+-", False, False, False, False),
    ],
)
def test_what_readers_ask(messages, running, underway, silent, open):
    turns = Hop(2).see(*messages.split()).turns

    assert (turns.is_running, turns.is_underway) == (running, underway)
    assert (turns.may_be_silent, turns.is_open) == (silent, open)


def test_the_earliest_turn_tells_how_long_a_session_runs():
    assert Hop(1).see(">p", ">q", "p=end_turn").turns.began_at == 2
    assert Hop(2).see(">p", "running").turns.began_at == 1
    assert Hop(2).turns.began_at is None


def test_updates_that_are_no_state_begin_and_end_nothing():
    turns = Hop(2).see(">p", "p", "running").turns
    for update in (
        {"sessionUpdate": "agent_message_chunk", "state": "idle"},
        {"sessionUpdate": "state_update"},
        {"sessionUpdate": "state_update", "state": ["idle"]},
    ):
        assert turns.take(update, 9.0) is None
    assert turns.work == "running"

    assert turns.take({"state": "idle", "stopReason": ["odd"]}, 9.0) == Ended(  # of a subagent
        None, ("p",), report={"state": "idle", "stopReason": ["odd"]}
    )


@pytest.mark.parametrize("version", [1, 2])
def test_a_stop_reason_that_is_no_text_ends_a_prompt_without_a_reason(version):
    turns = Hop(version).see(">p").turns

    assert turns.prompt_answered("p", 9.0, accepted=True, stop_reason=["odd"]) == Ended(
        None, ("p",)
    )


def test_a_subagent_has_turns_of_its_own():
    hop: Turns[str] = Turns(2)
    hop.of("parent").state("running", 1.0)
    hop.of("child").state("running", 1.0)
    hop.of("parent").cancel(2.0)

    assert not hop.of("child").is_cancelled


def test_an_agent_is_known_by_all_its_sessions_until_its_connection_is_lost():
    hop: Turns[str] = Turns(2)
    hop.of("a").state("running", 1.0)
    hop.of("b").prompt_sent("p", 2.0)
    hop.of("b").prompt_answered("p", 3.0, accepted=True)

    assert hop.of("b").state("idle", 4.0, stop_reason="end_turn") is None  # it reports `running`
    assert hop.lost() == ["a", "b"]
    hop.of("b").prompt_sent("q", 5.0)
    hop.of("b").prompt_answered("q", 6.0, accepted=True)
    assert hop.of("b").state("idle", 7.0, stop_reason="end_turn") == Ended("end_turn", ("q",))


def test_sessions_without_a_turn_are_forgotten_when_there_are_many():
    hop: Turns[str] = Turns(2)
    for n in range(1000):
        turns = hop.of_agent(f"s{n}")
        assert turns is not None
        if n % 2:
            turns.state("running", 1.0)

    assert hop.of_agent("x" * 1025) is None
    assert hop.of_agent("new") is not None
    assert len(hop.sessions) == 501
    for n in range(1000):
        if (turns := hop.of_agent(f"t{n}")) is not None:
            turns.state("running", 1.0)
    assert len(hop.sessions) == 1000
    hop.of("of the client").prompt_sent("p", 1.0)
    assert hop.of("of the client").is_running


@pytest.mark.parametrize(
    ("version", "messages", "until", "late"),
    [
        (1, ">p cancel", 1.0, ("", False)),
        (1, ">p cancel", 2.0, ("p", False)),
        (1, ">p cancel cancel", 2.0, ("p", False)),  # a repeated one gives no more time
        (1, ">p cancel >q", 9.0, ("p", False)),  # a later prompt is another turn
        (1, ">p cancel >q cancel", 3.0, ("p", False)),
        (1, ">p cancel >q cancel", 4.0, ("pq", False)),
        (1, ">p cancel p", 9.0, ("", False)),
        (2, "running requires_action cancel", 9.0, ("", True)),
        (2, "running cancel idle", 9.0, ("", False)),
        (2, ">p p >q cancel", 9.0, ("q", True)),
        (2, ">p cancel >q q running", 9.0, ("p", False)),  # the work is for q
        (2, "running cancel lost", 9.0, ("", False)),
    ],
)
def test_what_was_cancelled_until_a_time_and_continues(version, messages, until, late):
    """Prompts without an answer, and whether a state has to end more."""
    prompts, is_running = Hop(version).see(*messages.split()).turns.cancelled_until(until)
    assert ("".join(prompts), is_running) == late
