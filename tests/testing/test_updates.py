"""What `conductor.testing.updates` builds is valid by the official schemas, and plays a turn."""

from __future__ import annotations

import pytest
from support.schema_strategies import validator

from conductor.testing import FakeAgent, updates

PROMPT = {"id": 7, "params": {"sessionId": "s", "prompt": []}}
IMAGE = {"type": "image", "data": "", "mimeType": "image/png"}
NAMES = {1: "SessionNotification", 2: "UpdateSessionNotification"}


def check(version: int, name: str, value: object) -> None:
    problems = validator("newest", version, name).iter_errors(value)
    assert [problem.message for problem in problems] == []


def check_update(version: int, update: object) -> None:
    check(version, NAMES[version], updates.params("s", update))
    check(version, "SessionUpdate", update)


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize(
    "update",
    [
        updates.chunk("Hello", messageId="m1"),
        updates.chunk(IMAGE, messageId="m1"),
        updates.chunk("Hi", "user_message_chunk", messageId="m1"),
        updates.thought("Hm", messageId="t1"),
        updates.tool_call_update("1", "completed", "12 lines"),
        updates.tool_call_update("1", title="Read b"),
        updates.usage(1000),
        updates.usage(1000, 2000, cost=0.25),
    ],
)
def test_updates_of_both_versions_are_valid(version, update):
    check_update(version, update)


@pytest.mark.parametrize("version", [1, 2])
def test_updates_that_the_versions_write_differently_are_valid(version):
    check_update(version, updates.tool_call("1", "Read a", version=version))
    check_update(version, updates.tool_call("1", "Read a", version=version, kind="read"))
    done = {"content": "look", "priority": "high", "status": "completed"}
    check_update(version, updates.plan(done, "write", version=version))
    check_update(version, updates.plan(version=version))


def test_tool_calls_have_the_name_and_the_members_of_their_version():
    """The schemas allow unknown kinds of updates and further members."""
    call = {"toolCallId": "1", "title": "Read a", "kind": "other", "status": "pending"}
    text = [{"type": "content", "content": {"type": "text", "text": "12 lines"}}]
    change = {"toolCallId": "1", "status": "completed", "content": text}

    assert updates.tool_call("1", "Read a") == {"sessionUpdate": "tool_call", **call}
    new = updates.tool_call("1", "Read a", version=2)
    assert new == {"sessionUpdate": "tool_call_update", **call}
    done = updates.tool_call_update("1", "completed", "12 lines")
    assert done == {"sessionUpdate": "tool_call_update", **change}


@pytest.mark.parametrize(
    "update",
    [
        updates.message("m1", "One", IMAGE),
        updates.message("m1", "Hm", kind="agent_thought"),
        updates.message("p1", "hi", kind="user_message"),
        updates.state("running"),
        updates.state("requires_action"),
        updates.state("unknown"),
        updates.state("idle"),
        updates.state("idle", "end_turn"),
        updates.state("running", background=[{"type": "tool_call", "toolCallId": "1"}]),
    ],
)
def test_updates_of_version_2_are_valid(update):
    check_update(2, update)


def test_a_turn_of_version_1_ends_with_the_response():
    call = updates.tool_call("1", "Read a")

    assert updates.turn(PROMPT, "Hi", call, stop_reason="refusal") == [
        updates.notification("s", updates.chunk("Hi")),
        updates.notification("s", call),
        {"id": 7, "result": {"stopReason": "refusal"}},
    ]


def test_a_turn_of_version_2_begins_with_the_response():
    response, *messages = updates.turn(PROMPT, "Hi", version=2)

    check(2, "PromptResponse", response["result"])
    assert messages == [
        updates.notification("s", updates.state("running")),
        updates.notification("s", updates.chunk("Hi", messageId="answer-7")),
        updates.notification("s", updates.state("idle", "end_turn")),
    ]


@pytest.mark.parametrize("version", [1, 2])
async def test_a_fake_agent_plays_them_as_steps(acp_chain, version):
    steps = [
        updates.thought("Hm", messageId="t"),
        updates.tool_call("1", "Read a", version=version),
        updates.tool_call_update("1", "completed"),
        updates.plan("look", version=version),
        "Done.",
    ]
    async with acp_chain(FakeAgent(turns=[steps]), strict=True) as client:
        await client.initialize(version=version)
        end = await client.prompt_turn(await client.new_session(), "hi")

    said = [each for each in client.transcript.updates() if each["sessionUpdate"] != "state_update"]
    assert said[:-1] == steps[:-1]
    assert (client.transcript.text(), end["stopReason"]) == ("Done.", "end_turn")
