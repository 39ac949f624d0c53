"""Chains with plugins: guarantees to the client for any behaviour of a plugin."""

from __future__ import annotations

from contextlib import asynccontextmanager
from functools import partial

import pytest
import trio
from support.memory_chain import ANSWER, INITIALIZE, running_chain
from support.peers.port import hop
from support.peers.wire import MemoryComponent, Peer
from support.plugins import Idle, PassAll, plugin
from support.raw_json import nested

from conductor.limits import Limits
from conductor.plugins.plugin_component import PluginComponent
from conductor.proxy import Agent, Proxy, RequestError, on, tool


class SmallAgent(Agent):
    """Answers `initialize` and every other request."""

    def __init__(self):
        self.initialized = 0

    @on("initialize")
    async def initialize(self, params: dict):
        self.initialized += 1
        return ANSWER

    @on("_t/request")
    async def answer(self, params: dict):
        return params


async def test_a_chain_may_consist_of_plugins_alone(autojump_clock):
    agent = SmallAgent()
    make = [plugin("p0", Idle()), plugin("p1", PassAll()), PluginComponent("a", agent, "agent")]
    async with running_chain(make) as harness:
        await harness.send(INITIALIZE)
        assert await harness.client.receive() == {"id": 0, "result": ANSWER}

        harness.client.send({"id": 1, "method": "_t/request", "params": {"x": 1}})
        harness.client.send({"id": 2, "method": "_unknown"}, {"method": "_unknown"})

        assert await harness.client.receive() == {"id": 1, "result": {"x": 1}}
        error = {"code": -32601, "message": "Method not found", "data": "_unknown"}
        assert await harness.client.receive() == {"id": 2, "error": error}


async def test_a_second_initialize_reaches_an_agent_in_this_process(autojump_clock):
    agent = SmallAgent()
    async with running_chain(
        [plugin("p", Idle()), PluginComponent("a", agent, "agent")]
    ) as harness:
        await harness.send(INITIALIZE)
        await harness.client.receive()

        harness.client.send({**INITIALIZE, "id": 1})

        assert await harness.client.receive() == {"id": 1, "result": ANSWER}
        assert agent.initialized == 2


@pytest.mark.parametrize("checkpoints", range(6))
async def test_each_request_is_answered_once_at_any_moment_of_the_end_of_a_plugin(
    checkpoints, autojump_clock
):
    """Neighbours may still write between any two steps of the scheduler."""
    for seed in range(10):
        trio._core._run._r.seed(seed)
        async with hop(PassAll()) as made:
            client, agent = made.client, made.agent
            client.ask("_t/request", name="handled before")
            agent.ask("_t/request", name="asked before")
            await made.settle()
            made.component.terminate()
            for _ in range(checkpoints):
                await trio.lowlevel.checkpoint()

            client.ask("_t/request", name="handled")
            client.ask("_unhandled", name="passes")
            agent.ask("_t/request", name="asked")
            for number in range(3):
                agent.send("_unhandled", {"n": number})
            for end in (client, agent):
                while end.asked:
                    end.answer()
            await made.component.wait_ended()
            client.ask("_t/request", name="too late")
            for end in (client, agent):
                while end.asked:
                    end.answer()

        answered = ["handled", "handled before", "passes", "too late"]
        assert sorted(answers(client)) == answered
        assert sorted(answers(agent)) == ["asked", "asked before"]
        notes = [what[2] for what in client.heard if what[0] == "notification"]
        assert notes == [{"n": 0}, {"n": 1}, {"n": 2}]


def answers(end):
    """The names of its requests that were answered."""
    return [name for kind, name, _ in end.heard if kind == "answer"]


class BadCloser(Proxy):
    """Takes its time to end, and fails at that."""

    @asynccontextmanager
    async def lifespan(self):
        try:
            yield
        finally:
            with trio.CancelScope(shield=True):
                await trio.sleep(1)
            raise ValueError("closing failed")


async def test_a_late_failure_of_a_failed_start_does_not_affect_the_retry(autojump_clock):
    def make():
        return [plugin("p", BadCloser()), MemoryComponent("agent", "agent")]

    async with running_chain(make) as harness:
        await harness.send(INITIALIZE)
        harness.agent.close()
        assert (await harness.client.receive())["error"]["data"]["component"] == "agent"
        await harness.send({**INITIALIZE, "id": 1})
        request = await harness.agent.receive()
        await trio.sleep(2)

        harness.agent.answer(request, ANSWER)

        assert await harness.client.receive() == {"id": 1, "result": ANSWER}


class PassOnError(Proxy):
    """An observer: messages that it cannot handle are forwarded."""

    on_error = "pass"

    @on("_t/request")
    async def fail_after(self, params: dict, forward):
        await forward()
        raise ValueError("after the answer")


async def test_a_request_is_not_sent_twice_when_an_observer_fails_after_forwarding(autojump_clock):
    make = [plugin("p", PassOnError()), MemoryComponent("agent", "agent")]
    async with running_chain(make) as harness:
        await harness.send(INITIALIZE)
        harness.agent.answer(await harness.agent.receive(), ANSWER)
        await harness.client.receive()
        harness.client.send({"id": 1, "method": "_t/request"})
        harness.agent.answer(await harness.agent.receive(), "the answer")

        assert await harness.client.receive() == {"id": 1, "result": "the answer"}
        assert await harness.agent.receive_all() == []


class Odd(Proxy):
    """Answers with an error that is hard to write."""

    @on("_t/request")
    async def refuse(self, params: dict):
        raise RequestError(-1, "half \ud83d", {"no json": object, "big": 10**30})


async def test_an_error_that_cannot_be_encoded_is_still_answered(autojump_clock):
    async with running_chain([plugin("p", Odd()), MemoryComponent("agent", "agent")]) as harness:
        await harness.send(INITIALIZE)
        harness.agent.answer(await harness.agent.receive(), ANSWER)
        await harness.client.receive()
        harness.client.send({"id": 1, "method": "_t/request"})

        reply = await harness.client.receive()
        assert (reply["error"]["code"], reply["error"]["message"]) == (-1, "half \ud83d")
        assert reply["error"]["data"]["big"] == 10**30


class SlowEater(Proxy):
    """Drops updates, and takes its time for each."""

    @on("session/update")
    async def drop(self, params: bytes, forward):
        await trio.sleep(0.1)


async def test_an_agent_is_read_again_once_a_plugin_has_handled_what_waited(autojump_clock):
    """The plugin writes nothing meanwhile."""
    async with initialized(SlowEater()) as harness:
        update = {"sessionId": "s", "update": {"text": "x" * 50_000}}
        for _ in range(100):
            harness.agent.send({"method": "session/update", "params": update})
        harness.agent.send({"method": "last"})

        await trio.sleep(60)

        assert harness.agent.unsent() == 0
        assert await harness.client.receive() == {"method": "last"}


class Both(Proxy):
    """Asks the agent two things for each request."""

    @on("_t/request")
    async def ask_twice(self, params: dict, forward):
        async with trio.open_nursery() as nursery:
            for method in ("_t/one", "_t/two"):
                nursery.start_soon(self.agent.request, method, {})
        return {}


async def test_a_cancelled_request_cancels_all_that_its_handler_waits_for(autojump_clock):
    async with initialized(Both()) as harness:
        await harness.send({"id": 1, "method": "_t/request", "params": {}})
        asked = await harness.agent.receive_all()

        await harness.send({"method": "$/cancel_request", "params": {"requestId": 1}})

        assert sorted(each["method"] for each in asked) == ["_t/one", "_t/two"]
        cancelled = [each["params"]["requestId"] for each in await harness.agent.receive_all()]
        assert sorted(cancelled) == sorted(each["id"] for each in asked)


async def test_the_end_of_the_chain_is_no_cancellation_of_what_a_plugin_waits_for(autojump_clock):
    async with initialized(PassAll(), stop_timeout=1.0) as harness:
        harness.agent.stays = True
        await harness.send({"id": 1, "method": "_t/request", "params": {}})
        harness.client.close()

        await harness.client.wait_end()

        (reply,) = await harness.client.receive_all()
        assert reply["error"]["code"] == -32603
        assert "chain ended" in reply["error"]["message"]


async def test_a_chain_that_is_stopped_does_not_wait_for_handlers_that_wait(autojump_clock):
    async with initialized(PassAll(), stop_timeout=10.0) as harness:
        await harness.send({"id": 1, "method": "_t/request", "params": {}})
        before = trio.current_time()

        harness.chain.stop()
        await harness.wait_ended()

        assert trio.current_time() - before < 1
        assert (await harness.client.receive())["error"]["code"] == -32603


PROMPT = {"method": "session/prompt", "params": {"sessionId": "s", "prompt": []}}
CANCEL = {"method": "session/cancel", "params": {"sessionId": "s"}}


class Defers(Proxy):
    """Answers prompts itself, later: as soon as it is told that the turn is over."""

    @on("session/prompt")
    async def keep(self, params: dict, forward):
        def cancelled():
            self.start_soon(self.client.notify, "_told", {})
            answer({"stopReason": "cancelled"}, None)

        answer = self.defer(cancelled)


async def test_a_plugin_is_told_that_a_turn_it_has_deferred_was_ended(autojump_clock):
    async with initialized(Defers()) as harness:
        await harness.send({"id": 1, **PROMPT}, CANCEL)
        await trio.sleep(60)

        came = await harness.client.receive_all()

        assert [each for each in came if "id" in each] == [
            {"id": 1, "result": {"stopReason": "cancelled"}}
        ]
        assert {"method": "_told", "params": {}} in came


class Late(Proxy):
    """Forwards a prompt after a minute, although its turn was cancelled."""

    @on("session/prompt")
    async def take_its_time(self, params: dict, forward):
        with trio.CancelScope(shield=True):
            await trio.sleep(60)
        return await forward()


async def test_a_prompt_that_was_answered_in_its_place_is_not_forwarded_later(autojump_clock):
    async with initialized(Late()) as harness:
        await harness.send({"id": 1, **PROMPT}, CANCEL)
        await trio.sleep(100)

        came = await harness.client.receive_all()

        assert [each for each in came if "id" in each] == [
            {"id": 1, "result": {"stopReason": "cancelled"}}
        ]
        assert [each["method"] for each in await harness.agent.receive_all()] == ["session/cancel"]


class Notes(Proxy):
    """Tells the client which updates it has seen."""

    @on("session/update")
    async def see(self, params: dict, forward):
        await self.client.notify("_seen", params["update"])
        await forward()


class KeepsCancellation(Proxy):
    @on("session/cancel")
    async def keep(self, params: dict, forward):
        await trio.sleep_forever()


async def test_the_end_of_a_turn_that_a_plugin_blocks_passes_the_proxies_before_it(autojump_clock):
    """Version 2, in which it is an update."""
    agent = MemoryComponent("agent", "agent")
    make = [plugin("notes", Notes()), plugin("keeps", KeepsCancellation()), agent]
    running = {"sessionId": "s", "update": {"sessionUpdate": "state_update", "state": "running"}}
    async with running_chain(make) as harness:
        await harness.send({**INITIALIZE, "params": {"protocolVersion": 2}})
        agent.peer.answer(await agent.peer.receive(), {"protocolVersion": 2})
        await harness.client.receive()
        await harness.send({"id": 1, **PROMPT})
        agent.peer.answer(await agent.peer.receive(), {"messageId": "m"})
        agent.peer.send({"method": "session/update", "params": running})
        await harness.client.receive_all()

        await harness.send(CANCEL)
        await trio.sleep(60)

        idle = {"sessionUpdate": "state_update", "state": "idle", "stopReason": "cancelled"}
        seen = [each for each in await harness.client.receive_all() if each["method"] == "_seen"]
        assert seen == [{"method": "_seen", "params": idle}]


class Tools(Proxy):
    @tool
    async def hello(self) -> str:
        """Greet."""
        return "hello"


@pytest.mark.parametrize(
    ("params", "code"),
    [
        (b'{"_meta":"x"}', -32601),
        (b'{"_meta":[1],"serverId":[]}', -32601),
        (b'{"connectionId":{"a":1}}', -32601),
        (b"[1]", -32602),
        (b'{"_meta":%b}' % nested(500), -32602),
    ],
)
@pytest.mark.parametrize("method", ["mcp/connect", "mcp/message", "mcp/disconnect"])
async def test_params_that_are_none_are_no_failure_of_a_proxy_with_tools(
    method, params, code, autojump_clock
):
    async with running_chain([plugin("p", Tools()), MemoryComponent("agent", "agent")]) as harness:
        await harness.send(INITIALIZE)
        harness.agent.answer(await harness.agent.receive(), ANSWER)
        await harness.client.receive()
        harness.agent.send_bytes(
            b'{"jsonrpc":"2.0","id":1,"method":"%b","params":%b}\n' % (method.encode(), params)
        )

        assert (await harness.agent.receive())["error"]["code"] == code
        assert await harness.client.receive_all() == []


class Streams(Proxy):
    """Sends the client 10 MB of its own, as fast as it may."""

    def __init__(self):
        self.sent = 0

    @on("_t/note")
    async def stream(self, params: dict, forward):
        self.start_soon(self.send_all)

    async def send_all(self):
        for number in range(200):
            await self.client.notify("_piece", {"n": number, "text": "x" * 50_000})
            self.sent += 1


async def test_a_plugin_that_streams_waits_for_a_client_that_does_not_read(autojump_clock):
    streams = Streams()
    make = [plugin("p", streams), PluginComponent("a", SmallAgent(), "agent")]
    limits = Limits(max_buffered_bytes=3_000_000)
    async with running_chain(make, client=partial(Peer, reads=False), limits=limits) as harness:
        await harness.send(INITIALIZE)
        await harness.send({"method": "_t/note", "params": {}})

        await trio.sleep(60)
        assert streams.sent < 100
        harness.client.start_reading()

        _, *pieces = [await harness.client.receive() for _ in range(201)]
        assert [each["params"]["n"] for each in pieces] == list(range(200))


@asynccontextmanager
async def initialized(proxy, **options):
    """A chain of a plugin and an agent that the test plays."""
    make = [plugin("p", proxy), MemoryComponent("agent", "agent")]
    async with running_chain(make, **options) as harness:
        await harness.send(INITIALIZE)
        harness.agent.answer(await harness.agent.receive(), ANSWER)
        await harness.client.receive()
        yield harness
