"""A handler of an event that returns something else than its answer is an error of its author."""

from __future__ import annotations

import pytest

from conductor.errors import LocalProtocolError
from conductor.proxy import (
    Proxy,
    RequestError,
    on,
    on_permission,
    on_prompt,
    on_question,
    on_session_setup,
    on_text,
    slash,
)
from conductor.testing import FakeAgent


class NothingForSetup(Proxy):
    @on_session_setup
    async def handle(self, setup, forward): ...


class NothingForPrompt(Proxy):
    @on_prompt
    async def handle(self, session, prompt, forward):
        await forward()


class NoAwaitForPrompt(Proxy):
    @on_prompt
    async def handle(self, session, prompt, forward):
        return prompt.answer("no")


class TextForPrompt(Proxy):
    @on_prompt
    async def handle(self, session, prompt, forward):
        return "an answer"


class NothingForPermission(Proxy):
    @on_permission
    async def handle(self, session, asked, forward):
        asked.deny()


class NothingForQuestion(Proxy):
    @on_question
    async def handle(self, session, question, forward):
        question.decline()


class NumberForText(Proxy):
    @on_text
    async def handle(self, session, text):
        return 5


class NumberForCommand(Proxy):
    @slash("count", "Count")
    async def handle(self, session, arguments):
        return 17


@pytest.mark.parametrize(
    ("proxy", "prompt", "problem"),
    [
        (NothingForSetup, "say a", "nothing, not the answer .* `return await forward"),
        (NothingForPrompt, "say a", r"nothing, not the answer .* prompt\.answer"),
        (NoAwaitForPrompt, "say a", "a .* coroutine, not its result: write `return await …`"),
        (TextForPrompt, "say a", "a value of type str, not the answer to a request"),
        (NothingForPermission, "ask Edit", r"nothing, not the answer .* asked\.deny"),
        (NothingForQuestion, 'request elicitation/create {"sessionId": "session-1"}', "nothing"),
        (NumberForText, "say a", "a value of type int, not a str or None"),
        (NumberForCommand, "/count", "a value of type int, not a str or None"),
    ],
)
async def test_the_author_is_told_what_to_return(acp_chain, proxy, prompt, problem):
    async def converse():
        async with acp_chain(proxy(), strict=True) as client:
            await client.initialize()
            await client.prompt(await client.new_session("/project"), prompt)
            await client.transcript.wait(lambda _: False)

    said = rf"{proxy.__name__}\.handle returned {problem}"
    with pytest.raises(LocalProtocolError, match=said):
        await converse()


@pytest.mark.parametrize(
    ("proxy", "prompt", "place"),
    [(TextForPrompt, "say a", "on_prompt"), (NumberForCommand, "/count", "/count")],
)
async def test_the_place_of_a_wrong_return_value_is_what_the_author_wrote(
    acp_chain, proxy, prompt, place
):
    async with acp_chain(proxy()) as client:
        await client.initialize()
        with pytest.raises(RequestError, match=rf"{proxy.__name__} failed in {place}: "):
            await client.prompt(await client.new_session("/project"), prompt)


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize(
    ("method", "result"),
    [("session/new", "NewSessionResponse"), ("session/prompt", "PromptResponse")],
)
async def test_a_wire_handler_without_an_answer_is_told_its_type(
    acp_chain, version, method, result
):
    class P(Proxy):
        @on(method)
        async def forget(self, params, forward): ...

    async with acp_chain(P(), FakeAgent()) as client:
        await client.initialize(version=version)
        with pytest.raises(RequestError, match="returned nothing") as caught:
            await client.prompt(await client.new_session("/project"), "hi")
    assert f"{method!r} returned nothing, not a {result}: write" in caught.value.data["reason"]


async def test_nothing_is_an_answer_without_required_members(acp_chain):
    class P(Proxy):
        @on("authenticate")
        async def accept(self, params): ...

    async with acp_chain(P(), FakeAgent()) as client:
        await client.initialize()
        assert await client.request("authenticate", {"methodId": "m"}) is None


@pytest.mark.parametrize("blocks", [["a text"], "a text"])
async def test_a_text_is_no_content_block(acp_chain, blocks):
    class P(Proxy):
        @on_prompt
        async def change(self, session, prompt, forward):
            prompt.blocks = blocks if prompt.text == "change" else prompt.blocks
            return await forward()

    agent = FakeAgent()
    async with acp_chain(P(), agent) as client:
        await client.initialize()
        session = await client.new_session("/project")
        with pytest.raises(RequestError, match="P failed in on_prompt: ") as caught:
            await client.prompt(session, "change")
        assert "for a text write `text(…)`" in caught.value.data["reason"]
        await client.prompt(session, ["not a block of this proxy"])

    (prompt,) = agent.transcript.of("session/prompt", "request")
    assert prompt.params["prompt"] == ["not a block of this proxy"]


@pytest.mark.parametrize("function", ["prepend", "answer", "say"])
async def test_bytes_and_nothing_are_no_text(acp_chain, function):
    class P(Proxy):
        @on_prompt
        async def change(self, session, prompt, forward):
            text = None if prompt.text == "nothing" else b"main"
            if function == "prepend":
                prompt.prepend(text)
            elif function == "answer":
                return await prompt.answer(text)
            else:
                await session.say(text)
            return await forward()

    agent = FakeAgent()
    async with acp_chain(P(), agent) as client:
        await client.initialize()
        session = await client.new_session("/project")
        for text, given in (("bytes", "bytes"), ("nothing", "NoneType")):
            with pytest.raises(RequestError, match=f"{function}.* takes a str, not {given} "):
                await client.prompt(session, text)

    assert not agent.transcript.of("session/prompt", "request")
