"""Lane rules 4 and 5 of `conductor.proxy`: a released lane, and what forwarding does."""

from __future__ import annotations

from contextlib import asynccontextmanager

import attrs
import trio
import trio.lowlevel
from support.peers import port
from support.peers.port import Scripted, forward_unchanged, hop

from conductor.proxy import Proxy, on
from conductor.testing import FakeAgent

# -- rule 4 ----------------------------------------------------------------------------------------


async def test_a_released_lane_delivers_the_next_message():
    async def released(self, params, forward):
        self.release_lane()
        await trio.sleep_forever()

    async with hop(Scripted(released)) as on_hop:
        on_hop.client.send("_x", {"n": 1})
        on_hop.client.send("_other", {"n": 2})
        await on_hop.settle()

        assert on_hop.agent.heard == [("notification", "_other", {"n": 2})]


async def test_release_then_forward_still_gets_the_lane_of_the_response():
    gate = trio.Event()

    async def released(self, params, forward):
        self.release_lane()
        self.release_lane()
        result = await forward()
        await gate.wait()
        return result

    async with hop(Scripted(released)) as on_hop:
        on_hop.client.ask("_x", {"n": 1})
        await on_hop.settle()
        on_hop.agent.answer("done")
        on_hop.agent.send("_after", {})
        await on_hop.settle()
        assert on_hop.client.heard == []

        gate.set()
        await on_hop.settle()

        assert [what[1] for what in on_hop.client.heard] == ["_x", "_after"]


async def test_start_soon_runs_beside_the_lanes():
    async def beside(self, params, forward):
        async def later():
            answer = await self.agent.request("_own", {})
            await trio.lowlevel.checkpoint()
            await self.client.notify("_told", answer)
            await trio.sleep_forever()

        self.start_soon(later)
        await forward()

    async with hop(Scripted(beside)) as on_hop:
        on_hop.client.send("_x", {"n": 1})
        on_hop.client.send("_other", {"n": 2})
        await on_hop.settle()
        passed = [what[1] for what in on_hop.agent.heard]
        assert [method for method in passed if method != "_own"] == ["_x", "_other"]

        on_hop.agent.answer({"a": 1})
        await on_hop.settle()

        assert on_hop.client.heard == [("notification", "_told", {"a": 1})]


async def test_a_task_that_outlives_its_handler_touches_no_lane():
    """It inherits the handler's context; its worker already runs another handler."""
    gates = {name: trio.Event() for name in ("task", "second")}

    @attrs.define(eq=False)
    class Nursery(Scripted):
        nursery: object = None

        @asynccontextmanager
        async def lifespan(self):
            async with trio.open_nursery() as self.nursery:
                yield
                self.nursery.cancel_scope.cancel()

    async def handle(self, params, forward):
        if params["n"] == 1:

            async def task():
                await gates["task"].wait()
                self.release_lane()
                await self.agent.request("_own", {})

            self.nursery.start_soon(task)
        else:
            await gates["second"].wait()

    async with hop(Nursery(handle)) as on_hop:
        on_hop.client.send("_x", {"n": 1})
        await on_hop.settle()
        on_hop.client.send("_x", {"n": 2})
        on_hop.client.send("_other", {})
        await on_hop.settle()
        gates["task"].set()
        await on_hop.settle()
        assert [what[1] for what in on_hop.agent.heard] == ["_own"]

        on_hop.agent.answer({})
        on_hop.agent.send("_after", {})
        gates["second"].set()
        await on_hop.settle()

        assert [what[1] for what in on_hop.agent.heard] == ["_own", "_other"]
        assert [what[1] for what in on_hop.client.heard] == ["_after"]


async def test_a_lane_held_too_long_is_logged_with_its_handler(logged, autojump_clock):
    async def hold(self, params, forward):
        await trio.sleep(11)

    async with hop(Scripted(hold)) as on_hop:
        on_hop.client.send("_x", {"n": 1})
        await trio.sleep(20)

    fields = next(fields for event, fields in logged if event == "slow handler holds its lane")
    assert fields["lane"] == "toward the agent"
    assert fields["handler"].startswith(port.__file__)


# -- rule 5 ----------------------------------------------------------------------------------------


async def test_a_notification_that_is_not_forwarded_is_dropped():
    async def drop(self, params, forward):
        pass

    async with hop(Scripted(drop)) as on_hop:
        on_hop.client.send("_x", {"n": 1})
        on_hop.client.send("_other", {})
        await on_hop.settle()

        assert [what[1] for what in on_hop.agent.heard] == ["_other"]


async def test_forward_twice_sends_twice():
    async def twice(self, params, forward):
        first = await forward()
        second = await forward({"n": 2})
        return [first["r"], second["r"]]

    async with hop(Scripted(twice)) as on_hop:
        on_hop.client.ask("_x", {"n": 1})
        await on_hop.settle()
        on_hop.agent.answer({"r": "a"})
        await on_hop.settle()
        on_hop.agent.answer({"r": "b"})
        await on_hop.settle()

        assert [what[2] for what in on_hop.agent.heard] == [{"n": 1}, {"n": 2}]
        assert on_hop.client.heard == [("answer", "_x", ["a", "b"])]


async def test_forward_after_the_handler_has_answered_runs_beside_the_lanes():
    async def leak(self, params, forward):
        async def later():
            self.log.append(await forward({"n": 2}))

        self.start_soon(later)
        return "mine"

    plugin = Scripted(leak)
    async with hop(plugin) as on_hop:
        on_hop.client.ask("_x", {"n": 1})
        await on_hop.settle()
        on_hop.agent.answer({"too": "late"})
        await on_hop.settle()

    assert on_hop.client.heard == [("answer", "_x", "mine")]
    assert plugin.log == [1, {"too": "late"}]


async def test_a_refusal_passes_unchanged_through_a_handler_that_does_not_catch_it():
    async with hop(Scripted(forward_unchanged)) as on_hop:
        on_hop.client.ask("_x", {"n": 1})
        await on_hop.settle()
        on_hop.agent.refuse(-32123)
        await on_hop.settle()

        assert on_hop.client.heard == [("answer", "_x", -32123)]


async def test_a_refusal_in_a_nursery_is_still_the_answer():
    async def in_nursery(self, params, forward):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(forward)

    async with hop(Scripted(in_nursery)) as on_hop:
        on_hop.client.ask("_x", {"n": 1})
        await on_hop.settle()
        on_hop.agent.refuse(-32123)
        await on_hop.settle()

        assert on_hop.client.heard == [("answer", "_x", -32123)]


async def test_an_answer_that_a_handler_forgot_to_return_is_an_error_and_not_null():
    async def forgets(self, params, forward):
        await forward()

    async with hop(Scripted(forgets)) as on_hop:
        on_hop.client.ask("_x", {"n": 1})
        await on_hop.settle()
        on_hop.agent.answer({"r": 1})
        await on_hop.settle()

        assert on_hop.client.heard == [("answer", "_x", -32603)]


async def test_a_long_chain_of_plugins_needs_no_deep_stack(chain):
    class Passes(Proxy):
        @on("_handled")
        async def handle(self, params, forward):
            return await forward()

    echo = FakeAgent(handlers={method: lambda params: params for method in ("_handled", "_passed")})
    async with chain(*(Passes() for _ in range(64)), echo) as client:
        await client.initialize()

        assert await client.request("_handled", {"n": 1}) == {"n": 1}
        assert await client.request("_passed", {"n": 2}) == {"n": 2}
