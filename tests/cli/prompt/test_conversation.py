"""Sessions and turns with the test agent, in both versions of the protocol."""

from __future__ import annotations

from contextlib import asynccontextmanager
from functools import partial

import attrs
import pytest
import trio

from conductor.chainfile.model import ChainFile, ComponentSpec
from conductor.cli.prompt.conversation import (
    Conversation,
    DeclaredCapabilities,
    PermissionPrompt,
    declared_capabilities,
)
from conductor.client.acp_client import ChainClient
from conductor.client.embedding import attach_file
from conductor.errors import RequestError

CHAIN = ChainFile(path="x.yaml", name="x", agent=ComponentSpec(name="test-agent", use="test-agent"))


@attrs.define(eq=False)
class Recorder:
    """A display that keeps what it is told."""

    events: list = attrs.field(factory=list)
    seen: trio.Event = attrs.field(factory=trio.Event)

    def __getattr__(self, name):
        return lambda *values: self.events.append((name, *values))

    def update(self, session, update):
        self.events.append(("update", session, update))
        if text_of(update) == "waiting":
            self.seen.set()

    def texts(self, name="update"):
        found = [text_of(each[2]) for each in self.events if each[0] == name]
        return [text for text in found if text is not None]

    def endings(self):
        return [each[1] for each in self.events if each[0] == "ended"]


def text_of(update):
    content = update.get("content")
    if update["sessionUpdate"] == "agent_message_chunk" and isinstance(content, dict):
        return content.get("text")
    return None


@asynccontextmanager
async def conversing(version):
    """A conversation with an initialized agent."""
    display = Recorder()
    conversation = Conversation(display, PermissionPrompt("deny", None, display))
    handlers = {
        "session/update": conversation.on_update,
        "session/request_permission": conversation.permissions.decide,
    }
    async with attach_file(partial(ChainClient, handlers=handlers), CHAIN) as attached:
        conversation.client = attached.client
        await conversation.initialize(version, {"fs": {}})
        yield conversation


def block(text):
    return [{"type": "text", "text": text}]


@pytest.mark.parametrize("version", [1, 2])
async def test_turns_end_with_their_stop_reason(version):
    async with conversing(version) as conversation:
        await conversation.open("/")
        reasons = [await conversation.prompt(block(t)) for t in ("say hi", "stop refusal")]

    assert reasons == ["end_turn", "refusal"]
    assert conversation.display.texts() == ["hi"]
    assert conversation.display.endings() == [{"stopReason": each} for each in reasons]


@pytest.mark.parametrize("version", [1, 2])
async def test_a_cancelled_turn_is_not_the_end_of_the_session(version):
    async with conversing(version) as conversation:
        await conversation.open("/")
        async with trio.open_nursery() as nursery:
            nursery.start_soon(conversation.prompt, block("say waiting\nwait"))
            await conversation.display.seen.wait()
            conversation.cancel()
        assert conversation.display.endings() == [{"stopReason": "cancelled"}]

        assert await conversation.prompt(block("say again\nask Edit")) == "end_turn"

    assert conversation.display.texts() == ["waiting", "again", "Edit: reject\n"]


@pytest.mark.parametrize(("version", "resumes"), [(1, True), (2, True), (1, False)])
async def test_what_an_agent_replays_of_a_continued_session_is_apart(version, resumes):
    async with conversing(version) as conversation:
        await conversation.open("/")
        await conversation.prompt(block("say before"))
        conversation.capabilities = attrs.evolve(conversation.capabilities, resume=resumes)
        await conversation.reopen(conversation.session, "/")
        await conversation.prompt(block("say after"))

    assert conversation.display.texts("history") == ([] if resumes else ["before"])
    assert conversation.display.texts() == ["before", "after"]


async def test_an_agent_that_cannot_continue_sessions_is_not_asked_to():
    async with conversing(1) as conversation:
        conversation.capabilities = attrs.evolve(
            conversation.capabilities, load=False, resume=False
        )

        with pytest.raises(RequestError, match="the agent cannot continue sessions"):
            await conversation.reopen("session-1", "/")


async def test_a_turn_of_version_2_ends_with_its_own_work_and_tells_its_error():
    display, error = Recorder(), {"code": 1, "message": "no"}
    conversation = Conversation(display, PermissionPrompt("deny", None, display))
    conversation.session = "s"

    def told(state, **more):
        update = {"sessionUpdate": "state_update", "state": state, **more}
        conversation.on_update({"sessionId": "s", "update": update})

    class Agent:
        protocol_version = 2
        ended = trio.Event()

        async def prompt(self, session, blocks, answered, is_untouched):
            told("idle", stopReason="end_turn")
            answered({"messageId": "m"})
            told("running")
            told("idle", stopReason="error", error=error)

    conversation.client = Agent()
    told("running")  # the agent works by itself
    assert await conversation.prompt([]) == "error"
    assert display.endings() == [{"stopReason": "error", "error": error}]


@pytest.mark.parametrize(
    ("version", "answer", "found"),
    [
        (1, {"agentCapabilities": ["odd"]}, {}),
        (
            1,
            {
                "agentCapabilities": {
                    "loadSession": True,
                    "promptCapabilities": {"image": True, "embeddedContext": True},
                    "sessionCapabilities": {"resume": {}},
                }
            },
            {"image": True, "embedded_context": True, "load": True, "resume": True},
        ),
        (
            2,
            {"capabilities": {"session": {"prompt": {"image": {}}}}},
            {"image": True, "resume": True},
        ),
    ],
)
def test_the_capabilities_of_an_agent(version, answer, found):
    assert declared_capabilities(answer, version) == DeclaredCapabilities(**found)


def option(id, kind, name="Yes"):
    return {"optionId": id, "kind": kind, "name": name}


@pytest.mark.parametrize(
    ("options", "chosen"),
    [
        ([option("1", "allow_always"), option("2", "allow_once"), option("3", "reject_once")], "2"),
        ([option("1", "allow_always"), option("3", "reject_once")], "1"),
        ([option("1", "allow_once"), option("2", "allow_once"), option("3", "reject_once")], None),
        ([option("1", "allow_once", "Use auto mode"), option("3", "reject_once")], None),
        ([option("1", "allow_once"), option("2", "allow_always")], None),
    ],
)
async def test_a_run_that_allows_answers_no_questions(options, chosen):
    display = Recorder()
    prompt = PermissionPrompt("allow", None, display)

    outcome = (await prompt.decide({"options": options}))["outcome"]

    notes = [each for each in display.events if each[0] == "note"]
    assert outcome.get("optionId") == chosen
    assert (outcome["outcome"] == "cancelled") == bool(notes) == (chosen is None)
