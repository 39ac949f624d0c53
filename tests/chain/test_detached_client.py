"""A chain with a client that is disconnected and returns. In memory."""

from __future__ import annotations

import json
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import attrs
import pytest
import trio
from support.raw_json import dumps
from trio.testing import wait_all_tasks_blocked

from conductor.chain.chain import Chain
from conductor.chain.components import ChainSpec
from conductor.errors import RequestError
from conductor.routing.component import Component
from conductor.testing.fakes import FakeComponent
from conductor.transport.memory import LineChannel, memory_pair

CAPABILITIES = {"loadSession": True, "sessionCapabilities": {"resume": {}}}
MODES = {"currentModeId": "ask"}


@attrs.define(eq=False)
class World:
    """A chain of one agent and its client, both played by the test."""

    chain: Chain
    agents: list[FakeComponent]
    """The first process of the agent, and those for further sessions."""
    lines: LineChannel
    asked: list[tuple[str, Any]] = attrs.field(factory=list)
    """Requests that the agent got, except `initialize`."""
    finish: trio.Event = attrs.field(factory=trio.Event)
    """Ends the turns."""

    @property
    def agent(self) -> FakeComponent:
        return self.agents[0]

    async def send(self, *messages: dict[str, Any]) -> list[Any]:
        """Send messages as the client; returns what it receives until the chain is idle."""
        lines = [dumps({"jsonrpc": "2.0", **each}) for each in messages]
        await self.lines.send(lines)
        return await self.hear()

    async def hear(self) -> list[Any]:
        record_activity: list[bytes] = []
        while True:
            await wait_all_tasks_blocked()
            with trio.move_on_after(0):
                record_activity += await self.lines.receive()
                continue
            return [_without_version(json.loads(line)) for line in record_activity]

    async def ask(self, id: int, method: str, **params: Any) -> list[Any]:
        return await self.send({"id": id, "method": method, "params": params})

    async def open_session(self) -> None:
        await self.ask(0, "initialize", protocolVersion=1)
        await self.ask(1, "session/new", cwd="/", mcpServers=[])

    async def cut(self) -> None:
        assert self.chain.client_end.detach(self.lines.take_rest())
        self.lines.close()
        await wait_all_tasks_blocked()

    async def reattach(self) -> list[Any]:
        """Messages that the client receives on its return."""
        theirs, ours = memory_pair()
        self.lines = LineChannel(ours)
        self.chain.client_end.reattach(theirs)
        return await self.ask(0, "initialize", protocolVersion=1)

    async def tell(self, session: str = "s1", **update: Any) -> None:
        self.agent.endpoint.notify("session/update", {"sessionId": session, "update": update})
        await wait_all_tasks_blocked()


@asynccontextmanager
async def world(capabilities: Any = CAPABILITIES, processes: int = 0) -> AsyncIterator[World]:
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

    def make_agent() -> FakeComponent:
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
        return agent

    theirs, ours = memory_pair()
    agents = [make_agent()]
    made = iter(agents)

    def make() -> list[Component]:
        if (agent := next(made, None)) is None:
            agents.append(agent := make_agent())
        return [agent]

    spec = ChainSpec(make, session_processes=processes)
    each = World(Chain(theirs, spec), agents, LineChannel(ours))
    each.chain.client_end.allow_reattach()
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


async def test_what_the_process_of_another_session_sends_waits_for_the_client_too():
    async with world(processes=1) as it:
        await it.open_session()
        await it.ask(2, "session/new", cwd="/", mcpServers=[])
        await it.ask(3, "session/prompt", sessionId="s2", prompt=[])
        await it.cut()
        note = {"sessionId": "s2", "update": {"n": 1}}
        it.agents[1].endpoint.notify("session/update", note)
        await wait_all_tasks_blocked()
        await it.reattach()

        assert await it.ask(4, "session/resume", sessionId="s2", cwd="/") == [
            {"id": 4, "result": {"modes": MODES}},
            update("s2", n=1),
        ]


async def test_a_returned_client_is_initialized_from_the_record_and_the_agent_sees_nothing():
    async with world() as it:
        await it.open_session()
        await it.cut()

        record_activity = await it.reattach()

        assert record_activity == [INITIALIZED]
        assert [method for method, _ in it.asked] == ["session/new"]


async def test_updates_of_a_running_turn_are_queued_until_the_session_is_resumed():
    async with world() as it:
        await it.open_session()
        await it.ask(2, "session/prompt", sessionId="s1", prompt=[])
        await it.tell(n=1)
        await it.hear()
        await it.cut()
        await it.tell(n=2)
        back = await it.reattach()
        await it.tell(n=3)

        record_activity = await it.ask(1, "session/resume", sessionId="s1", cwd="/", mcpServers=[])
        await it.tell(n=4)

        assert back == [INITIALIZED]
        assert record_activity == [{"id": 1, "result": {"modes": MODES}}, update(n=2), update(n=3)]
        assert await it.hear() == [update(n=4)]
        assert [method for method, _ in it.asked] == ["session/new", "session/prompt"]
        assert it.chain.client.queue is None  # messages pass directly again


async def test_a_response_for_the_old_connection_does_not_match_a_request_of_the_new():
    """Ids begin anew with every connection."""
    async with world() as it:
        await it.open_session()
        await it.ask(2, "session/prompt", sessionId="s1", prompt=[])
        await it.cut()
        await it.reattach()
        await it.ask(1, "session/resume", sessionId="s1", cwd="/", mcpServers=[])

        await it.ask(2, "session/prompt", sessionId="s1", prompt=[])
        it.finish.set()

        assert await it.hear() == [{"id": 2, "result": {"stopReason": "end_turn"}}]


async def test_without_a_turn_the_agent_resumes_if_it_can():
    async with world() as it:
        await it.open_session()
        it.finish.set()
        await it.ask(2, "session/prompt", sessionId="s1", prompt=[])
        await it.cut()
        await it.tell(n=1)
        await it.reattach()

        record_activity = await it.ask(1, "session/resume", sessionId="s1", cwd="/", mcpServers=[])

        assert record_activity == [{"id": 1, "result": {"from": "the agent"}}, update(n=1)]


async def test_an_agent_that_cannot_resume_is_not_asked_to():
    async with world({}) as it:
        await it.open_session()
        await it.cut()
        await it.tell(n=1)
        await it.reattach()

        record_activity = await it.ask(1, "session/resume", sessionId="s1", cwd="/", mcpServers=[])

        assert record_activity == [{"id": 1, "result": {"modes": MODES}}, update(n=1)]


async def test_before_a_session_is_loaded_the_updates_that_waited_are_dropped():
    async with world() as it:
        await it.open_session()
        await it.cut()
        await it.tell(n=1)
        await it.reattach()

        record_activity = await it.ask(1, "session/load", sessionId="s1", cwd="/", mcpServers=[])
        await it.tell(n=2)

        assert record_activity == [update(history=1), {"id": 1, "result": None}]
        assert await it.hear() == [update(n=2)]


async def test_where_a_session_cannot_be_loaded_its_updates_go_on_waiting():
    async with world() as it:
        await it.open_session()
        it.agent.handlers["session/load"] = _refuse
        await it.cut()
        await it.tell(n=1)
        await it.reattach()

        refused = await it.ask(1, "session/load", sessionId="s1", cwd="/", mcpServers=[])
        await it.tell(n=2)
        record_activity = await it.ask(2, "session/resume", sessionId="s1", cwd="/", mcpServers=[])

        assert refused == [{"id": 1, "error": {"code": -32000, "message": "no"}}]
        assert record_activity[1:] == [update(n=1), update(n=2)]


def _refuse(params: Any) -> Any:
    raise RequestError(-32000, "no")


async def test_a_resumption_that_replays_history_is_like_loading():
    """Version 2: `replayFrom`."""
    async with world() as it:
        await it.open_session()
        await it.cut()
        await it.tell(n=1)
        await it.reattach()

        record_activity = await it.ask(
            1, "session/resume", sessionId="s1", cwd="/", replayFrom={"a": 1}
        )

        assert record_activity == [{"id": 1, "result": {"from": "the agent"}}]


async def test_notices_are_queued_with_other_updates():
    async with world() as it:
        await it.open_session()
        await it.cut()
        await it.tell(n=1)
        it.chain.client_end.send_notice("s1", "something happened")
        await it.tell(n=2)
        await it.reattach()

        record_activity = await it.ask(1, "session/resume", sessionId="s1", cwd="/", mcpServers=[])

        texts = [
            each["params"]["update"].get("content", {}).get("text") for each in record_activity[1:]
        ]
        assert texts == [None, "\n\n[acp-conductor] something happened\n\n", None]


@pytest.mark.parametrize("seed", range(8))
async def test_updates_are_delivered_once_and_in_order(seed):
    rng = random.Random(seed)
    async with world() as it:
        await it.open_session()
        await it.ask(2, "session/prompt", sessionId="s1", prompt=[])
        record_activity: list[Any] = []
        told = 0
        for _ in range(60):
            match rng.choice(["tell", "tell", "tell", "hear", "cut", "resume"]):
                case "tell":
                    await it.tell(n=told)
                    told += 1
                case "hear":
                    record_activity += await it.hear()
                case "cut":
                    await it.cut()
                    record_activity += await it.reattach()
                case "resume":
                    params = {"sessionId": "s1", "cwd": "/", "mcpServers": []}
                    record_activity += await it.ask(1, "session/resume", **params)
        record_activity += await it.ask(1, "session/resume", sessionId="s1", cwd="/", mcpServers=[])

        updates = [each for each in record_activity if each.get("method") == "session/update"]
        assert updates == [update(n=number) for number in range(told)]


async def test_an_unanswered_request_to_the_client_is_sent_again_each_time():
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
        await it.reattach()
        record_activity = await it.ask(1, "session/resume", sessionId="s1", cwd="/", mcpServers=[])
        await it.cut()
        await it.reattach()
        _, again = await it.ask(1, "session/resume", sessionId="s1", cwd="/", mcpServers=[])
        await it.send({"id": again["id"], "result": {"outcome": {"outcome": "cancelled"}}})

        assert [each["method"] for each in first] == ["session/request_permission"]
        assert record_activity[0] == {"id": 1, "result": {"from": "the agent"}}
        assert record_activity[1]["params"] == again["params"] == first[0]["params"]
        assert record_activity[2:] == [update(n=1)]
        assert answers == [{"outcome": {"outcome": "cancelled"}}]


async def test_a_request_cancelled_meanwhile_is_cancelled_at_the_returned_client():
    async with world() as it, trio.open_nursery() as nursery:
        await it.open_session()
        nursery.start_soon(_ask_and_withdraw, it)
        await it.hear()
        await it.cut()
        it.finish.set()
        await wait_all_tasks_blocked()
        await it.reattach()

        record_activity = await it.ask(1, "session/resume", sessionId="s1", cwd="/", mcpServers=[])
        assert [each.get("method") for each in record_activity] == [
            None,
            "session/request_permission",
            "$/cancel_request",
        ]
        assert record_activity[2]["params"] == {"requestId": record_activity[1]["id"]}
        await it.send(
            {"id": record_activity[1]["id"], "error": {"code": -32800, "message": "cancelled"}}
        )


async def _ask_and_withdraw(it: World) -> None:
    with trio.CancelScope() as scope:
        async with trio.open_nursery() as nursery:

            async def withdraw() -> None:
                await it.finish.wait()
                scope.cancel()

            nursery.start_soon(withdraw)
            await it.agent.endpoint.request("session/request_permission", {"sessionId": "s1"})


async def test_a_request_too_large_to_be_kept_is_answered_with_an_error():
    async with world() as it, trio.open_nursery() as nursery:
        await it.open_session()
        errors = []

        async def ask() -> None:
            try:
                await it.agent.endpoint.request("_vendor/write", {"content": "a" * 9_000_000})
            except RequestError as exc:
                errors.append(exc.message)

        nursery.start_soon(ask)
        await it.hear()
        await it.cut()

        assert errors == [
            "The client was disconnected, and this request was too large to be sent again"
        ]


async def test_messages_written_but_not_read_are_queued_in_order():
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
        await it.reattach()

        record_activity = await it.ask(1, "session/resume", sessionId="s1", cwd="/", mcpServers=[])

        assert [each.get("method", each.get("result")) for each in record_activity] == [
            {"from": "the agent"},
            "session/update",
            "session/request_permission",
            "session/update",
            "session/update",
        ]
        assert [record_activity[1], *record_activity[3:]] == [update(n=1), update(n=2), update(n=3)]
        nursery.cancel_scope.cancel()


async def test_a_client_may_continue_without_initialize_and_resume():
    """Any message that names a session resumes it."""
    async with world() as it:
        await it.open_session()
        await it.cut()
        await it.tell(n=1)
        theirs, ours = memory_pair()
        it.lines = LineChannel(ours)
        it.chain.client_end.reattach(theirs)
        silent = await it.hear()

        record_activity = await it.ask(7, "session/prompt", sessionId="s1", prompt=[])

        assert (silent, record_activity) == ([], [update(n=1)])


async def test_a_session_that_is_not_resumed_does_not_block_others():
    async with world() as it:
        await it.open_session()
        await it.ask(2, "session/new", cwd="/", mcpServers=[])
        await it.cut()
        await it.reattach()
        await it.ask(1, "session/resume", sessionId="s2", cwd="/", mcpServers=[])
        await it.tell("s1", n=1)
        await it.tell("s2", n=2)

        record_activity = await it.hear()
        text = "a" * 65536
        for _ in range(20):
            await it.tell("s1", text=text)
        await it.tell("s2", n=3)
        more = await it.hear()

        assert record_activity == [update("s2", n=2)]
        assert more[0] == update("s1", n=1)
        assert more[1:] == [*[update("s1", text=text)] * 20, update("s2", n=3)]


async def test_the_queue_of_a_detached_client_is_bounded_without_loss():
    async with world() as it:
        await it.open_session()
        await it.ask(2, "session/prompt", sessionId="s1", prompt=[])
        await it.cut()
        for n in range(200):
            it.agent.endpoint.notify("session/update", update(n=n, text="a" * 65536)["params"])
        await wait_all_tasks_blocked()
        left_unread = it.agent.endpoint.connection.write_buffer.size
        await it.reattach()

        record_activity = await it.ask(1, "session/resume", sessionId="s1", cwd="/", mcpServers=[])

        assert left_unread > 200 * 65536 - 6 * 1024 * 1024
        assert [each["params"]["update"]["n"] for each in record_activity[1:]] == list(range(200))


async def test_a_client_may_be_disconnected_repeatedly():
    async with world() as it:
        await it.open_session()
        await it.ask(2, "session/prompt", sessionId="s1", prompt=[])
        for n in range(3):
            await it.cut()
            await it.tell(n=n)
            await it.reattach()
        await it.cut()
        await it.reattach()

        record_activity = await it.ask(1, "session/resume", sessionId="s1", cwd="/", mcpServers=[])

        assert record_activity[1:] == [update(n=0), update(n=1), update(n=2)]


async def test_a_client_that_was_not_initialized_cannot_be_detached():
    async with world() as it:
        assert not it.chain.client_end.detach()


async def test_the_client_of_a_chain_that_ends_cannot_be_detached():
    async with world() as it:
        await it.open_session()
        it.chain.stop()

        assert not it.chain.client_end.detach()


async def test_a_chain_stopped_while_its_client_is_away_answers_open_requests():
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


async def test_what_a_client_had_no_room_for_when_it_was_cut_off_is_delivered():
    async with world() as it:
        await it.open_session()
        for n in range(20):
            await it.tell(n=n, text="a" * 30_000)
        await it.cut()
        await it.reattach()

        received = await it.ask(1, "session/resume", sessionId="s1", cwd="/", mcpServers=[])

        assert [each["params"]["update"]["n"] for each in received[1:]] == list(range(20))


async def test_answered_requests_leave_room_for_those_that_are_sent_again():
    """9 MB of files were written before; up to 8 MiB are kept."""
    async with world() as it, trio.open_nursery() as nursery:
        await it.open_session()

        def write_file(size: int) -> None:
            file = {"sessionId": "s1", "path": "/f", "content": "a" * size}
            nursery.start_soon(it.agent.endpoint.request, "_vendor/write", file)

        for _ in range(180):
            write_file(50_000)
            (request,) = await it.hear()
            await it.send({"id": request["id"], "result": {}})
        write_file(50_000)
        (first,) = await it.hear()
        await it.cut()
        await it.reattach()

        _, again = await it.ask(1, "session/resume", sessionId="s1", cwd="/", mcpServers=[])

        assert again["params"] == first["params"]
        await it.send({"id": again["id"], "result": {}})
