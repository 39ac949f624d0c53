"""A plugin from `lifespan()` to the end of its chain."""

from __future__ import annotations

import json
from contextlib import asynccontextmanager
from typing import ClassVar

import pytest
import trio
import trio.lowlevel
from support.peers.port import End, Scripted, hop

from conductor.errors import ConnectionClosed, LocalProtocolError
from conductor.plugins.plugin_component import PluginComponent
from conductor.proxy import Proxy, on


async def test_at_the_end_every_open_request_is_answered():
    async def forever(self, params, forward):
        if params["n"] == 1:
            return await forward()
        return await trio.sleep_forever()

    async with hop(Scripted(forever)) as on_hop:
        on_hop.client.ask("_x", {"n": 1}, name="forwarded")
        on_hop.client.ask("_x", {"n": 2}, name="own")
        on_hop.client.ask("_x", {"n": 3}, name="queued")
        on_hop.client.ask("_other", {"n": 4}, name="passing")
        await on_hop.settle()
        on_hop.component.terminate()
        await on_hop.ended.wait()
        on_hop.client.ask("_x", {"n": 5}, name="late")
        on_hop.client.send("_x", {"n": 6})
        on_hop.client.send("_other", {"n": 7})

        answers = {what[1]: what[2] for what in on_hop.client.heard}
        assert answers == dict.fromkeys(("forwarded", "own", "queued", "late"), -32603)
        assert [what[2]["n"] for what in on_hop.agent.heard] == [1, 4, 7]


@pytest.mark.parametrize("waits", [True, False], ids=["handler waits", "handler has ended"])
async def test_at_the_end_a_deferred_request_is_answered_once(waits, autojump_clock):
    async def defer(self, params, forward):
        self.defer(lambda: None)
        if waits:
            await self.agent.request("_y", {})

    async with hop(Scripted(defer)) as on_hop:
        on_hop.client.ask("_x", {"n": 1})
        await on_hop.settle()
        with trio.fail_after(60):
            await on_hop.component.wait_drained()
        await on_hop.ended.wait()
        assert on_hop.client.heard == [("answer", "_x", -32603)]


async def test_later_answers_to_a_deferred_request_are_dropped():
    answers = []

    class Passes(Scripted):
        on_error = "pass"

    async def defer(self, params, forward):
        answers.append(self.defer(lambda: None))
        if params["n"] == "failed":
            raise ValueError("passed on")

    async with hop(Passes(defer)) as on_hop:
        for name in ("failed", "deferred"):
            on_hop.client.ask("_x", {"n": name}, name=name)
        await on_hop.settle()
        on_hop.agent.answer("of the agent")
        for answer in (*answers, *answers):
            answer("of the plugin", None)
        assert on_hop.client.heard == [
            ("answer", "failed", "of the agent"),
            ("answer", "deferred", "of the plugin"),
        ]


async def test_after_a_failure_prompts_that_the_agent_may_have_got_are_cut_off():
    class Client(End):
        def respond(self, call, result, error):
            message = json.loads(bytes(error))["message"]
            self.hear(self._names[call], "was cut off" if "was cut off" in message else message)

    class Fails(Proxy):
        @asynccontextmanager
        async def lifespan(self):
            async with trio.open_nursery() as nursery:
                self.nursery = nursery
                yield

        @on("session/prompt")
        async def prompt(self, params, forward):
            if params["sessionId"] == "forwarded":
                return await forward()
            if params["sessionId"] == "deferred":
                return self.defer(lambda: None) and None
            return await trio.sleep_forever()

        async def worn_out(self):
            raise RuntimeError("worn out")

    plugin = Fails()
    async with hop(plugin, Client) as on_hop:
        for session in ("forwarded", "deferred", "held"):
            on_hop.client.ask("session/prompt", {"sessionId": session}, name=session)
        await on_hop.settle()
        plugin.nursery.start_soon(plugin.worn_out)
        await on_hop.ended.wait()

    answers = dict(on_hop.client.heard)
    assert answers["forwarded"] == answers["deferred"] == "was cut off"
    assert "The prompt did not reach the agent." in answers["held"]


async def test_the_end_waits_for_handlers_that_finish():
    gate = trio.Event()

    async def wait(self, params, forward):
        await gate.wait()
        await forward()

    async with hop(Scripted(wait)) as on_hop, trio.open_nursery() as nursery:
        on_hop.client.send("_x", {"n": 1})
        on_hop.component.close_input()
        nursery.start_soon(on_hop.component.wait_drained)
        await on_hop.settle()
        assert not on_hop.ended.is_set()

        gate.set()
        await on_hop.ended.wait()

        assert on_hop.agent.heard == [("notification", "_x", {"n": 1})]


async def test_no_requests_before_the_lifespan_begins_and_after_it_ends():
    class Early(Proxy):
        errors: ClassVar = []

        @asynccontextmanager
        async def lifespan(self):
            try:
                await self.agent.request("_own", {})
            except LocalProtocolError as exc:
                self.errors.append(str(exc))
            yield
            try:
                await self.agent.request("_own", {})
            except ConnectionClosed as exc:
                self.errors.append(str(exc))

    plugin = Early()
    async with hop(plugin) as on_hop:
        on_hop.component.terminate()
        await on_hop.ended.wait()

    before, after = plugin.errors
    assert "before lifespan() has yielded" in before
    assert "start_soon" in before
    assert "the chain is ending" in after


async def test_lifespan_may_start_tasks_and_wait_at_its_end():
    steps = []

    class Opens(Proxy):
        @asynccontextmanager
        async def lifespan(self):
            self.start_soon(self.ask)
            yield
            await trio.lowlevel.checkpoint()
            steps.append("closed")

        async def ask(self):
            steps.append(await self.agent.request("_own", {}))

    async with hop(Opens()) as on_hop:
        on_hop.agent.answer({"n": 1})
        await on_hop.settle()
        on_hop.component.terminate()
        await on_hop.ended.wait()

    assert steps == [{"n": 1}, "closed"]


async def test_a_lifespan_that_does_not_begin_is_a_failure_to_start(autojump_clock):
    class Hangs(Proxy):
        @asynccontextmanager
        async def lifespan(self):
            await trio.sleep_forever()
            yield

    async with hop(Hangs()) as on_hop:
        await trio.sleep(31)
        (failure,) = on_hop.host.failures

    assert str(failure) == "component 'hop' did not start: lifespan() did not yield within 30 s"


def test_a_plugin_that_was_not_started_has_no_backlog():
    assert PluginComponent("x", Scripted(), "proxy").backlog() == 0


@pytest.mark.parametrize(
    ("seconds", "answer"), [(20, {"protocolVersion": 1}), (40, -32603)], ids=["in time", "late"]
)
async def test_the_start_timeout_of_a_plugin_does_not_run_while_it_waits_for_its_successor(
    seconds, answer, autojump_clock
):
    class Slow(Proxy):
        @on("initialize")
        async def initialize(self, params, forward):
            await trio.sleep(20)
            result = await forward()
            await trio.sleep(seconds)
            return result

    async with hop(Slow()) as on_hop:  # with 30 s
        on_hop.client.ask("initialize", {"protocolVersion": 1})
        await trio.sleep(100)
        on_hop.agent.answer({"protocolVersion": 1})
        await trio.sleep(100)
        assert on_hop.client.heard == [("answer", "initialize", answer)]
