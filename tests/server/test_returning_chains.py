"""A chain whose client is cut off and comes back. In memory; see `parking`."""

from __future__ import annotations

import json
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import attrs
import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from conductor.chain import Chain
from conductor.components.base import Component
from conductor.errors import RequestError
from conductor.remote.lines import Lines
from conductor.routing.unanswered import Unanswered
from conductor.testing.fakes import FakeComponent
from conductor.transport.memory import memory_pair

CAPABILITIES = {"loadSession": True, "sessionCapabilities": {"resume": {}}}
MODES = {"currentModeId": "ask"}


@attrs.define(eq=False)
class World:
    """A chain of one agent, which the test plays, and its client, which comes and goes."""

    chain: Chain
    agent: FakeComponent
    lines: Lines
    asked: list[tuple[str, Any]] = attrs.field(factory=list)
    """What the agent was asked, but for `initialize`."""
    finish: trio.Event = attrs.field(factory=trio.Event)
    """Ends the turns."""

    async def send(self, *messages: dict[str, Any]) -> list[Any]:
        """Say something as the client; returns what the client heard until nothing more happens."""
        lines = [json.dumps({"jsonrpc": "2.0", **each}).encode() for each in messages]
        await self.lines.send(lines)
        return await self.hear()

    async def hear(self) -> list[Any]:
        heard: list[bytes] = []
        while True:
            await wait_all_tasks_blocked()
            with trio.move_on_after(0):
                heard += await self.lines.receive()
                continue
            return [_without_version(json.loads(line)) for line in heard]

    async def ask(self, id: int, method: str, **params: Any) -> list[Any]:
        return await self.send({"id": id, "method": method, "params": params})

    async def open_session(self) -> None:
        await self.ask(0, "initialize", protocolVersion=1)
        await self.ask(1, "session/new", cwd="/", mcpServers=[])

    async def cut(self) -> None:
        assert self.chain.park(self.lines.take_rest())
        self.lines.close()
        await wait_all_tasks_blocked()

    async def come_back(self) -> list[Any]:
        """What the client hears on its return."""
        theirs, ours = memory_pair()
        self.lines = Lines(ours)
        self.chain.take_back(theirs)
        return await self.ask(0, "initialize", protocolVersion=1)

    async def tell(self, session: str = "s1", **update: Any) -> None:
        self.agent.endpoint.notify("session/update", {"sessionId": session, "update": update})
        await wait_all_tasks_blocked()


@asynccontextmanager
async def world(capabilities: Any = CAPABILITIES) -> AsyncIterator[World]:
    sessions = 0

    def noted(method: str, answer: Any) -> Any:
        async def handler(params: Any) -> Any:
            each.asked.append((method, params))
            return await answer(params) if callable(answer) else answer

        return handler

    async def new(params: Any) -> Any:
        nonlocal sessions
        sessions += 1
        return {"sessionId": f"s{sessions}", "modes": MODES}

    async def load(params: Any) -> Any:
        each.agent.endpoint.notify(
            "session/update", {"sessionId": params["sessionId"], "update": {"history": 1}}
        )
        return None

    async def prompt(params: Any) -> Any:
        await each.finish.wait()
        return {"stopReason": "end_turn"}

    agent = FakeComponent("agent", "agent")
    for method, answer in {
        "session/new": new,
        "session/load": load,
        "session/prompt": prompt,
        "session/resume": {"from": "the agent"},
        "session/list": {"sessions": []},
    }.items():
        agent.handlers[method] = noted(method, answer)
    agent.handlers["initialize"] = lambda params: {
        "protocolVersion": 1,
        "agentCapabilities": capabilities,
    }
    theirs, ours = memory_pair()

    def make() -> list[Component]:
        return [agent]

    each = World(Chain(theirs, make, bridged=False), agent, Lines(ours))
    each.chain.expect_return()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(each.chain.run)
        yield each
        each.chain.kill()


def _without_version(message: Any) -> Any:
    assert message.pop("jsonrpc") == "2.0"
    return message


def update(session: str = "s1", **update: Any) -> Any:
    return {"method": "session/update", "params": {"sessionId": session, "update": update}}


INITIALIZED = {"id": 0, "result": {"protocolVersion": 1, "agentCapabilities": CAPABILITIES}}


async def test_a_returned_client_is_initialized_from_the_record_and_the_agent_sees_nothing():
    async with world() as it:
        await it.open_session()
        await it.cut()

        heard = await it.come_back()

        assert heard == [INITIALIZED]
        assert [method for method, _ in it.asked] == ["session/new"]


async def test_a_turn_goes_on_and_its_updates_wait_until_the_session_is_resumed():
    async with world() as it:
        await it.open_session()
        await it.ask(2, "session/prompt", sessionId="s1", prompt=[])
        await it.tell(n=1)
        await it.hear()
        await it.cut()
        await it.tell(n=2)
        back = await it.come_back()
        await it.tell(n=3)

        heard = await it.ask(1, "session/resume", sessionId="s1", cwd="/", mcpServers=[])
        await it.tell(n=4)

        assert back == [INITIALIZED]
        assert heard == [{"id": 1, "result": {"modes": MODES}}, update(n=2), update(n=3)]
        assert await it.hear() == [update(n=4)]
        assert [method for method, _ in it.asked] == ["session/new", "session/prompt"]


async def test_the_answer_for_the_lost_connection_is_not_taken_for_one_of_the_new():
    """Ids begin anew with every connection."""
    async with world() as it:
        await it.open_session()
        await it.ask(2, "session/prompt", sessionId="s1", prompt=[])
        await it.cut()
        await it.come_back()
        await it.ask(1, "session/resume", sessionId="s1", cwd="/", mcpServers=[])

        await it.ask(2, "session/prompt", sessionId="s1", prompt=[])
        it.finish.set()

        assert await it.hear() == [{"id": 2, "result": {"stopReason": "end_turn"}}]


async def test_without_a_turn_the_agent_resumes_if_it_can():
    async with world() as it:
        await it.open_session()
        await it.cut()
        await it.tell(n=1)
        await it.come_back()

        heard = await it.ask(1, "session/resume", sessionId="s1", cwd="/", mcpServers=[])

        assert heard == [{"id": 1, "result": {"from": "the agent"}}, update(n=1)]


async def test_an_agent_that_cannot_resume_is_not_asked_to():
    async with world({}) as it:
        await it.open_session()
        await it.cut()
        await it.tell(n=1)
        await it.come_back()

        heard = await it.ask(1, "session/resume", sessionId="s1", cwd="/", mcpServers=[])

        assert heard == [{"id": 1, "result": {"modes": MODES}}, update(n=1)]


async def test_before_a_session_is_loaded_the_updates_that_waited_are_dropped():
    async with world() as it:
        await it.open_session()
        await it.cut()
        await it.tell(n=1)
        await it.come_back()

        heard = await it.ask(1, "session/load", sessionId="s1", cwd="/", mcpServers=[])
        await it.tell(n=2)

        assert heard == [update(history=1), {"id": 1, "result": None}]
        assert await it.hear() == [update(n=2)]


async def test_where_a_session_cannot_be_loaded_its_updates_go_on_waiting():
    async with world() as it:
        await it.open_session()
        it.agent.handlers["session/load"] = _refuse
        await it.cut()
        await it.tell(n=1)
        await it.come_back()

        refused = await it.ask(1, "session/load", sessionId="s1", cwd="/", mcpServers=[])
        await it.tell(n=2)
        heard = await it.ask(2, "session/resume", sessionId="s1", cwd="/", mcpServers=[])

        assert refused == [{"id": 1, "error": {"code": -32000, "message": "no"}}]
        assert heard[1:] == [update(n=1), update(n=2)]


def _refuse(params: Any) -> Any:
    raise RequestError(-32000, "no")


async def test_a_resumption_that_replays_history_is_like_loading():
    """Version 2: `replayFrom`."""
    async with world() as it:
        await it.open_session()
        await it.cut()
        await it.tell(n=1)
        await it.come_back()

        heard = await it.ask(1, "session/resume", sessionId="s1", cwd="/", replayFrom={"a": 1})

        assert heard == [{"id": 1, "result": {"from": "the agent"}}]


async def test_what_the_conductor_says_waits_with_the_rest():
    async with world() as it:
        await it.open_session()
        await it.cut()
        await it.tell(n=1)
        it.chain.tell("s1", "something happened")
        await it.tell(n=2)
        await it.come_back()

        heard = await it.ask(1, "session/resume", sessionId="s1", cwd="/", mcpServers=[])

        texts = [each["params"]["update"].get("content", {}).get("text") for each in heard[1:]]
        assert texts == [None, "[acp-conductor] something happened\n", None]


@pytest.mark.parametrize("seed", range(20))
async def test_whatever_comes_in_between_updates_are_told_once_and_in_order(seed):
    rng = random.Random(seed)
    async with world() as it:
        await it.open_session()
        await it.ask(2, "session/prompt", sessionId="s1", prompt=[])
        heard: list[Any] = []
        told = 0
        for _ in range(60):
            match rng.choice(["tell", "tell", "tell", "hear", "cut", "resume"]):
                case "tell":
                    await it.tell(n=told)
                    told += 1
                case "hear":
                    heard += await it.hear()
                case "cut":
                    await it.cut()
                    heard += await it.come_back()
                case "resume":
                    params = {"sessionId": "s1", "cwd": "/", "mcpServers": []}
                    heard += await it.ask(1, "session/resume", **params)
        heard += await it.ask(1, "session/resume", sessionId="s1", cwd="/", mcpServers=[])

        updates = [each for each in heard if each.get("method") == "session/update"]
        assert updates == [update(n=number) for number in range(told)]


async def test_a_question_without_an_answer_is_asked_again():
    async with world() as it, trio.open_nursery() as nursery:
        await it.open_session()
        answers = []

        async def ask() -> None:
            question = {"sessionId": "s1", "options": []}
            answers.append(await it.agent.endpoint.request("session/request_permission", question))

        nursery.start_soon(ask)
        first = await it.hear()
        await it.cut()
        await it.tell(n=1)
        await it.come_back()
        heard = await it.ask(1, "session/resume", sessionId="s1", cwd="/", mcpServers=[])
        await it.send({"id": heard[1]["id"], "result": {"outcome": {"outcome": "cancelled"}}})

        assert [each["method"] for each in first] == ["session/request_permission"]
        assert heard[0] == {"id": 1, "result": {"from": "the agent"}}
        assert heard[1]["params"] == first[0]["params"]
        assert heard[2:] == [update(n=1)]
        assert answers == [{"outcome": {"outcome": "cancelled"}}]


async def test_a_question_that_was_withdrawn_meanwhile_is_withdrawn_from_the_returned_client():
    async with world() as it, trio.open_nursery() as nursery:
        await it.open_session()
        nursery.start_soon(_ask_and_withdraw, it)
        await it.hear()
        await it.cut()
        it.finish.set()
        await wait_all_tasks_blocked()
        await it.come_back()

        heard = await it.ask(1, "session/resume", sessionId="s1", cwd="/", mcpServers=[])
        assert [each.get("method") for each in heard] == [
            None,
            "session/request_permission",
            "$/cancel_request",
        ]
        assert heard[2]["params"] == {"requestId": heard[1]["id"]}
        await it.send({"id": heard[1]["id"], "error": {"code": -32800, "message": "cancelled"}})


async def _ask_and_withdraw(it: World) -> None:
    with trio.CancelScope() as scope:
        async with trio.open_nursery() as nursery:

            async def withdraw() -> None:
                await it.finish.wait()
                scope.cancel()

            nursery.start_soon(withdraw)
            await it.agent.endpoint.request("session/request_permission", {"sessionId": "s1"})


async def test_a_question_that_was_too_large_to_be_kept_is_answered_with_an_error():
    async with world() as it, trio.open_nursery() as nursery:
        it.chain.client.observer = Unanswered(bound=400)
        await it.open_session()
        errors = []

        async def ask() -> None:
            try:
                await it.agent.endpoint.request("fs/write_text_file", {"content": "a" * 400})
            except RequestError as exc:
                errors.append(exc.message)

        nursery.start_soon(ask)
        await it.hear()
        await it.cut()

        assert errors == [
            "The client was cut off, and this request was too large to be asked again"
        ]


async def test_what_was_written_and_never_read_waits_too_in_its_order():
    async with world() as it, trio.open_nursery() as nursery:
        await it.open_session()
        await it.tell(n=1)
        nursery.start_soon(
            it.agent.endpoint.request, "session/request_permission", {"sessionId": "s1"}
        )
        await wait_all_tasks_blocked()
        await it.tell(n=2)
        await it.cut()
        await it.tell(n=3)
        await it.come_back()

        heard = await it.ask(1, "session/resume", sessionId="s1", cwd="/", mcpServers=[])

        assert [each.get("method", each.get("result")) for each in heard] == [
            {"from": "the agent"},
            "session/update",
            "session/request_permission",
            "session/update",
            "session/update",
        ]
        assert [heard[1], *heard[3:]] == [update(n=1), update(n=2), update(n=3)]
        nursery.cancel_scope.cancel()


async def test_a_client_may_go_on_as_if_nothing_had_been():
    """Without `initialize`, and without resuming: whatever it says about a session takes it up."""
    async with world() as it:
        await it.open_session()
        await it.cut()
        await it.tell(n=1)
        theirs, ours = memory_pair()
        it.lines = Lines(ours)
        it.chain.take_back(theirs)
        silent = await it.hear()

        heard = await it.ask(7, "session/prompt", sessionId="s1", prompt=[])

        assert (silent, heard) == ([], [update(n=1)])


async def test_a_session_that_is_not_taken_up_does_not_hold_up_the_other():
    async with world() as it:
        await it.open_session()
        await it.ask(2, "session/new", cwd="/", mcpServers=[])
        await it.cut()
        await it.come_back()
        await it.ask(1, "session/resume", sessionId="s2", cwd="/", mcpServers=[])
        await it.tell("s1", n=1)
        await it.tell("s2", n=2)

        heard = await it.hear()
        text = "a" * 65536
        for _ in range(20):
            await it.tell("s1", text=text)
        await it.tell("s2", n=3)
        more = await it.hear()

        assert heard == [update("s2", n=2)]
        assert more[0] == update("s1", n=1)
        assert more[1:] == [*[update("s1", text=text)] * 20, update("s2", n=3)]


async def test_what_waits_for_a_client_that_is_away_is_bounded_and_nothing_is_lost():
    async with world() as it:
        await it.open_session()
        await it.ask(2, "session/prompt", sessionId="s1", prompt=[])
        await it.cut()
        for n in range(200):
            it.agent.endpoint.notify("session/update", update(n=n, text="a" * 65536)["params"])
        await wait_all_tasks_blocked()
        left_unread = it.agent.endpoint.connection.outbox.size
        await it.come_back()

        heard = await it.ask(1, "session/resume", sessionId="s1", cwd="/", mcpServers=[])

        assert left_unread > 200 * 65536 - 6 * 1024 * 1024
        assert [each["params"]["update"]["n"] for each in heard[1:]] == list(range(200))


async def test_cut_off_again_and_again():
    async with world() as it:
        await it.open_session()
        await it.ask(2, "session/prompt", sessionId="s1", prompt=[])
        for n in range(3):
            await it.cut()
            await it.tell(n=n)
            await it.come_back()
        await it.cut()
        await it.come_back()

        heard = await it.ask(1, "session/resume", sessionId="s1", cwd="/", mcpServers=[])

        assert heard[1:] == [update(n=0), update(n=1), update(n=2)]


async def test_a_client_that_was_never_initialized_has_nothing_to_come_back_to():
    async with world() as it:
        assert not it.chain.park()


async def test_a_chain_that_is_stopped_while_its_client_is_away_answers_who_waits_for_it():
    async with world() as it, trio.open_nursery() as nursery:
        await it.open_session()
        errors = []

        async def ask() -> None:
            try:
                await it.agent.endpoint.request("session/request_permission", {"sessionId": "s1"})
            except RequestError as exc:
                errors.append(str(exc))

        nursery.start_soon(ask)
        await it.hear()
        await it.cut()
        it.chain.stop()
        await wait_all_tasks_blocked()

        assert errors == ["The client is gone (-32603)"]
