"""Lane rule 6 of `conductor.proxy`: cancelling a request that a handler is answering."""

from __future__ import annotations

import trio
from support.peers.port import Scripted, forward_unchanged, hop


async def test_cancelling_a_handler_that_waits_for_a_response_cancels_the_hops_request():
    async with hop(Scripted(forward_unchanged)) as on_hop:
        call = on_hop.client.ask("_x", {"n": 1})
        await on_hop.settle()
        call.cancel()
        await on_hop.settle()
        assert on_hop.agent.cancelled == ["_x"]
        assert on_hop.client.heard == []

        on_hop.agent.answer("real")
        await on_hop.settle()

        assert on_hop.client.heard == [("answer", "_x", "real")]


async def test_cancelling_a_handler_that_waits_for_something_of_its_own_cancels_it():
    async def wait(self, params, forward):
        await trio.sleep_forever()

    async with hop(Scripted(wait)) as on_hop:
        call = on_hop.client.ask("_x", {"n": 1})
        on_hop.client.send("_other", {})
        await on_hop.settle()
        call.cancel()
        await on_hop.settle()

        assert on_hop.client.heard == [("answer", "_x", -32800)]
        assert [what[1] for what in on_hop.agent.heard] == ["_other"]


async def test_cancelling_after_the_response_cancels_the_rest_of_the_handler():
    async def wait_after(self, params, forward):
        await forward()
        await trio.sleep_forever()

    async with hop(Scripted(wait_after)) as on_hop:
        call = on_hop.client.ask("_x", {"n": 1})
        await on_hop.settle()
        on_hop.agent.answer({})
        on_hop.agent.send("_after", {})
        await on_hop.settle()
        call.cancel()
        await on_hop.settle()

        assert on_hop.agent.cancelled == []
        assert [what[1:] for what in on_hop.client.heard] == [("_x", -32800), ("_after", {})]


async def test_cancelling_a_request_that_waits_in_its_lane_answers_it_at_once():
    gate = trio.Event()

    async def wait(self, params, forward):
        await gate.wait()
        return "done"

    plugin = Scripted(wait)
    async with hop(plugin) as on_hop:
        on_hop.client.ask("_x", {"n": 1}, name="first")
        call = on_hop.client.ask("_x", {"n": 2}, name="second")
        on_hop.client.ask("_x", {"n": 3}, name="third")
        await on_hop.settle()
        call.cancel()
        assert on_hop.client.heard == [("answer", "second", -32800)]

        gate.set()
        await on_hop.settle()

    assert on_hop.client.heard[1:] == [("answer", "first", "done"), ("answer", "third", "done")]
    assert plugin.log == [1, 3]


async def test_a_request_without_a_handler_is_cancelled_at_the_next_hop():
    gate = trio.Event()

    async def wait(self, params, forward):
        await gate.wait()

    async with hop(Scripted(wait)) as on_hop:
        on_hop.client.send("_x", {"n": 1})
        call = on_hop.client.ask("_other")
        call.cancel()
        gate.set()
        await on_hop.settle()

        assert on_hop.agent.cancelled == ["_other"]


async def test_requests_sent_by_a_cancelled_handler_are_cancelled():
    async def twice(self, params, forward):
        await self.agent.request("_hidden", {})
        return await forward()

    async with hop(Scripted(twice)) as on_hop:
        call = on_hop.client.ask("_x", {"n": 1})
        await on_hop.settle()
        call.cancel()
        on_hop.agent.answer({})
        await on_hop.settle()

        assert on_hop.agent.cancelled == ["_hidden", "_x"]


async def test_a_wait_of_limited_time_cancels_its_request_and_nothing_else(autojump_clock):
    async def impatient(self, params, forward):
        with trio.move_on_after(1):
            await self.agent.request("_slow", {})
        return "gave up"

    async with hop(Scripted(impatient)) as on_hop:
        on_hop.client.ask("_x", {"n": 1})
        await trio.sleep(2)
        assert on_hop.client.heard == [("answer", "_x", "gave up")]
        assert on_hop.agent.cancelled == ["_slow"]

        on_hop.agent.answer({})
        on_hop.agent.send("_after", {})
        await on_hop.settle()

        assert on_hop.client.heard[1:] == [("notification", "_after", {})]
