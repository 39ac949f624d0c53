"""`@on_prompt`, `@on_cancel` and `@slash`."""

from __future__ import annotations

from typing import Any

import pytest
import trio
from support.event_samples import opened

from conductor.proxy import Proxy, RequestError, on_cancel, on_prompt, slash
from conductor.testing import FakeAgent


async def test_on_prompt_changes_answers_and_refuses(chain):
    class P(Proxy):
        @on_prompt
        async def prompt(self, session, prompt, forward):
            match prompt.text:
                case "change":
                    prompt.blocks[0]["text"] = "changed"
                    return await forward()
                case "answer":
                    return await prompt.answer("by the proxy", stop_reason="refusal")
            raise RequestError(-32000, "no")

    agent = FakeAgent()
    async with chain(P(), agent) as client:
        session = await opened(client)
        await client.prompt(session, "change")
        answer = await client.prompt(session, "answer")
        with pytest.raises(RequestError, match="no"):
            await client.prompt(session, "other")

    assert answer["stopReason"] == "refusal"
    assert client.transcript.text() == "by the proxy"
    prompts = agent.transcript.of("session/prompt", "request")
    assert [each.params["prompt"][0]["text"] for each in prompts] == ["changed"]


async def test_a_slash_command_is_announced_and_answered(chain):
    class P(Proxy):
        @slash("notes", "Show the notes")
        async def notes(self, session, arguments):
            return f"notes of {session.cwd}: {arguments}"

        @on_prompt
        async def prompt(self, session, prompt, forward):
            raise AssertionError("a command is not a prompt")

    agent = FakeAgent()
    async with chain(P(), agent) as client:
        session = await opened(client)
        answer = await client.prompt(session, "/notes all of them")

    (update,) = [
        each
        for each in client.transcript.updates()
        if each["sessionUpdate"] == "available_commands_update"
    ]
    assert [command["name"] for command in update["availableCommands"]] == ["notes"]
    assert client.transcript.text() == "notes of /work: all of them"
    assert answer["stopReason"] == "end_turn"
    assert agent.transcript.of("session/prompt", "request") == []


COMPACT = {"type": "text", "text": "/compact"}
MENTION = {"type": "resource_link", "uri": "file:///a.py", "name": "a.py"}


@pytest.mark.parametrize(
    ("blocks", "is_command"),
    [
        ([COMPACT], True),  # no agent here has announced it
        ([{"type": "text", "text": "\n /review the branch\nwith care"}], True),
        ([{"type": "text", "text": "/mcp:server:tool x"}], True),
        ([MENTION, {"type": "text", "text": " "}, COMPACT], True),
        ([{"type": "text", "text": "/git/commit now"}], True),  # announced by this agent
        ([{"type": "text", "text": "/etc/hosts is wrong"}], False),
        ([{"type": "text", "text": "// a comment"}], False),
        ([{"type": "text", "text": "/* another */"}], False),
        ([{"type": "text", "text": "/ is full"}], False),
        ([{"type": "text", "text": "see"}, COMPACT], False),
        ([MENTION], False),
    ],
)
@pytest.mark.parametrize("version", [1, 2])
async def test_a_text_is_put_before_a_prompt_unless_it_is_a_command(
    chain, version, blocks, is_command
):
    class P(Proxy):
        @on_prompt
        async def prompt(self, session, prompt, forward):
            told.append((prompt.is_command, prompt.prepend("Be brief.")))
            return await forward()

    told, agent = [], FakeAgent()
    listed = [{"name": "git/commit", "description": "commit"}]
    async with chain(P(), agent) as client:
        await client.initialize(version=version)
        session = await client.new_session("/work")
        agent.update(
            session, {"sessionUpdate": "available_commands_update", "availableCommands": listed}
        )
        await client.transcript.wait("session/update available_commands_update")
        await client.request("session/prompt", {"sessionId": session, "prompt": blocks})

    assert told == [(is_command, not is_command)]
    (heard,) = agent.transcript.of("session/prompt", "request")
    before = [] if is_command else [{"type": "text", "text": "Be brief."}]
    assert heard.params["prompt"] == [*before, *blocks]


async def test_a_prompt_without_a_session_is_refused(chain):
    class P(Proxy):
        @on_prompt
        async def prompt(self, session, prompt, forward):
            return await forward()

    agent = FakeAgent()
    async with chain(P(), agent) as client:
        await opened(client)
        with pytest.raises(RequestError, match="sessionId: expected string"):
            await client.request("session/prompt", {"prompt": []})

    assert agent.transcript.of("session/prompt", "request") == []


async def test_in_version_2_an_answered_prompt_is_a_whole_turn(chain):
    class P(Proxy):
        @on_prompt
        async def prompt(self, session, prompt, forward):
            return await prompt.answer("by the proxy")

    agent = FakeAgent()
    async with chain(P(), agent) as client:
        await client.initialize(version=2)
        session = (await client.request("session/new", {"cwd": "/work"}))["sessionId"]
        await client.prompt(session, "hi")

    states = [each.get("state") for each in client.transcript.updates()]
    assert [state for state in states if state] == ["running", "idle"]
    assert agent.transcript.of("session/prompt", "request") == []


async def test_on_cancel_comes_before_the_agent_learns_of_it(chain):
    seen = []

    class P(Proxy):
        @on_cancel
        async def cancelled(self, session):
            seen.append(("proxy", session.cancelled))

    agent = FakeAgent(handlers={"session/cancel": lambda params: seen.append("agent")})
    async with chain(P(), agent) as client:
        session = await opened(client)
        client.cancel(session)
        await client.prompt(session, "hi")

    assert seen == [("proxy", True), "agent"]


class Held(Proxy):
    """Holds every prompt back until `free` is set."""

    def __init__(self) -> None:
        self.free, self.waits = trio.Event(), trio.Event()

    @on_prompt
    async def hold(self, session, prompt, forward):
        self.waits.set()
        await prompt.wait(self.free.wait)
        return await forward()


@pytest.mark.parametrize("version", [1, 2])
async def test_a_prompt_that_is_held_back_is_cancelled_with_the_session(chain, version):
    proxy, agent, answers = Held(), FakeAgent(), []
    async with chain(proxy, agent) as client:
        await client.initialize(version=version)
        session = await client.new_session("/work")

        async def prompt():
            try:
                answers.append(await client.prompt(session, "hi"))
            except RequestError as exc:
                answers.append(exc.code)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(prompt)
            await proxy.waits.wait()
            client.cancel(session)

    assert answers == [{"stopReason": "cancelled"} if version == 1 else -32800]
    assert agent.transcript.of("session/prompt", "request") == []


async def test_a_prompt_goes_on_after_it_was_held_back(chain):
    proxy, agent = Held(), FakeAgent(turns=[["done"]])
    proxy.free.set()
    async with chain(proxy, agent) as client:
        await client.prompt(await opened(client), "hi")

    assert client.transcript.text() == "done"


async def test_a_prompt_tells_whether_a_proxy_has_answered_it(chain):
    seen: list[Any] = []

    class Answered(Proxy):
        @on_prompt
        async def prompt(self, session, prompt, forward):
            result = await forward()
            seen.append(prompt.answered_by_proxy)
            return result

    class Refuses(Proxy):
        @on_prompt
        async def prompt(self, session, prompt, forward):
            return await (prompt.answer("no") if prompt.text == "bad" else forward())

    async with chain(Answered(), Refuses(), FakeAgent()) as client:
        session = await opened(client)
        for text in ("good", "bad"):
            await client.prompt(session, text)

    assert seen == [False, True]
