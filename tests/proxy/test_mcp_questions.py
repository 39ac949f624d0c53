"""Calls that ask their caller in MCP 2026-07-28: answered with questions, and then repeated."""

from __future__ import annotations

from typing import Any

import attrs
import pytest
import trio
from mcp.types import ElicitRequest, ElicitRequestFormParams, InputRequiredResult

from conductor.errors import RequestError
from conductor.proxy.mcp_questions import Conversations


@attrs.define
class Sdk:
    """The part of the SDK's context that a call needs."""

    request_state: str | None = None
    input_responses: dict[str, Any] | None = None


@attrs.define(eq=False)
class Asking:
    """The context of a call."""

    ask: Any
    sdk: Any = None

    async def elicit(self, message: str) -> Any:
        params = ElicitRequestFormParams(message=message, requested_schema={"type": "object"})
        return await self.ask(ElicitRequest(params=params), None)


async def never(context: Asking) -> None:
    raise AssertionError("a repeated call does not begin again")


def messages(result: Any) -> dict[str, str]:
    assert isinstance(result, InputRequiredResult)
    return {key: asked.params.message for key, asked in (result.input_requests or {}).items()}


async def test_the_method_goes_on_with_the_answer_and_the_context_of_the_repeated_call():
    seen: list[Any] = []

    async def method(context: Asking) -> str:
        seen.append(context.sdk)
        answer = await context.elicit("Who?")
        seen.append(context.sdk)
        return f"hello {answer}"

    calls = Conversations()
    async with calls.running():
        first = Sdk()
        asked = await calls.call(first, lambda ask: Asking(ask, first), method)
        again = Sdk(asked.request_state, {"question-1": "ann"})
        result = await calls.call(again, Asking, never)

    assert messages(asked) == {"question-1": "Who?"}
    assert result == "hello ann"
    assert seen == [first, again]


async def test_only_the_questions_that_are_not_answered_are_asked_again():
    async def method(context: Asking) -> list[str]:
        answers: list[str] = []

        async def ask(message: str) -> None:
            answers.append(await context.elicit(message))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(ask, "One?")
            nursery.start_soon(ask, "Two?")
        return sorted(answers)

    calls = Conversations()
    async with calls.running():
        asked = await calls.call(Sdk(), Asking, method)
        while len(messages(asked)) < 2:  # the other task had not asked yet
            asked = await calls.call(Sdk(asked.request_state), Asking, never)
        keys = {message: key for key, message in messages(asked).items()}
        rest = await calls.call(Sdk(asked.request_state, {keys["One?"]: "1"}), Asking, never)
        result = await calls.call(Sdk(rest.request_state, {keys["Two?"]: "2"}), Asking, never)

    assert messages(rest) == {keys["Two?"]: "Two?"}
    assert result == ["1", "2"]


async def test_a_question_that_was_given_up_takes_no_answer():
    given_up = trio.Event()

    async def method(context: Asking) -> str:
        with trio.CancelScope() as scope:
            scopes.append(scope)
            await context.elicit("Too late?")
        given_up.set()
        return "no time"

    scopes: list[trio.CancelScope] = []
    calls = Conversations()
    async with calls.running():
        asked = await calls.call(Sdk(), Asking, method)
        scopes[0].cancel()
        await given_up.wait()
        result = await calls.call(Sdk(asked.request_state, {"question-1": "x"}), Asking, never)

    assert result == "no time"


async def test_a_method_is_cancelled_with_the_call_that_waits_for_it():
    begun, cancelled = trio.Event(), trio.Event()

    async def method(context: Asking) -> None:
        begun.set()
        try:
            await trio.sleep_forever()
        finally:
            cancelled.set()

    calls = Conversations()
    async with calls.running(), trio.open_nursery() as nursery:
        nursery.start_soon(calls.call, Sdk(), Asking, method)
        await begun.wait()
        nursery.cancel_scope.cancel()
        with trio.CancelScope(shield=True), trio.fail_after(5):
            await cancelled.wait()


async def test_an_exception_of_the_method_is_raised_in_the_call_that_waits_for_it():
    async def method(context: Asking) -> None:
        await context.elicit("Who?")
        raise RequestError(-32050, "refused")

    calls = Conversations()
    async with calls.running():
        asked = await calls.call(Sdk(), Asking, method)
        with pytest.raises(RequestError, match="refused"):
            await calls.call(Sdk(asked.request_state, {"question-1": "x"}), Asking, never)


async def test_methods_end_with_the_connection():
    ended = trio.Event()

    async def method(context: Asking) -> None:
        try:
            await context.elicit("Who?")
        finally:
            ended.set()

    calls = Conversations()
    with trio.fail_after(5):
        async with calls.running():
            await calls.call(Sdk(), Asking, method)
            assert not ended.is_set()

    assert ended.is_set()
