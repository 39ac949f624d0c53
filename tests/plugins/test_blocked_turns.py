"""Turns that a plugin blocks after their cancellation: what blocks, and the forced end."""

from __future__ import annotations

import trio
from support.peers.port import hop

from conductor.proxy import Proxy, on

CANCELLED = {"stopReason": "cancelled"}
S, OTHER = {"sessionId": "s", "prompt": []}, {"sessionId": "other", "prompt": []}


class Busy(Proxy):
    """Its handlers wait, and never for the successor."""

    @on("session/prompt")
    async def prompt(self, params, forward):
        await trio.sleep_forever()

    @on("_slow")
    async def slow(self, params, forward):
        try:
            await trio.sleep_forever()
        except trio.Cancelled:
            with trio.CancelScope(shield=True):
                await trio.sleep(5)
            raise

    @on("_hold")
    async def hold(self, params, forward):
        await trio.sleep_forever()


async def test_a_prompt_whose_handler_is_busy_is_blocked_and_is_answered_for_it():
    async with hop(Busy()) as on_hop:
        on_hop.client.ask("session/prompt", S)
        await on_hop.settle()
        plugin = on_hop.component

        assert plugin.blocks_turn("s")
        assert not plugin.blocks_turn("other")
        assert len(plugin.busy_calls()) == 1
        assert not plugin.end_turn("other", version_2=False)

        assert plugin.end_turn("s", version_2=False)
        await on_hop.settle()
        assert on_hop.client.heard == [("answer", "session/prompt", CANCELLED)]
        assert not plugin.end_turn("s", version_2=False)


async def test_a_prompt_that_waits_for_the_successor_is_not_blocked_here():
    class Forwarding(Proxy):
        @on("session/prompt")
        async def prompt(self, params, forward):
            return await forward()

    async with hop(Forwarding()) as on_hop:
        on_hop.client.ask("session/prompt", S)
        await on_hop.settle()

        assert not on_hop.component.blocks_turn("s")
        assert on_hop.component.busy_calls() == set()
        assert not on_hop.component.end_turn("s", version_2=False)


async def test_what_is_queued_behind_a_handler_is_answered_and_the_cancellation_passes_it():
    async with hop(Busy()) as on_hop:
        client, plugin = on_hop.client, on_hop.component
        client.send("_hold")
        client.ask("session/prompt", S, "first")
        client.ask("session/prompt", OTHER, "other")
        client.send("session/cancel", {"sessionId": "s"})
        await on_hop.settle()
        assert plugin.blocks_turn("s")

        assert plugin.end_turn("s", version_2=False)
        await on_hop.settle()

        assert client.heard == [("answer", "first", CANCELLED)]
        assert on_hop.agent.heard == [("notification", "session/cancel", {"sessionId": "s"})]
        assert not plugin.blocks_turn("s")
        assert plugin.blocks_turn("other")


async def test_in_version_2_the_answer_of_a_blocked_prompt_is_an_error():
    async with hop(Busy()) as on_hop:
        on_hop.client.ask("session/prompt", S)
        await on_hop.settle()

        assert on_hop.component.end_turn("s", version_2=True)
        await on_hop.settle()
        assert on_hop.client.heard == [("answer", "session/prompt", -32800)]


async def test_the_end_of_a_turn_behind_a_handler_blocks_the_turn():
    async with hop(Busy()) as on_hop:
        state = {"sessionUpdate": "state_update", "state": "idle"}
        on_hop.agent.send("_hold")
        on_hop.agent.send("session/update", {"sessionId": "s", "update": state})
        await on_hop.settle()

        assert on_hop.component.blocks_turn("s")
        assert not on_hop.component.blocks_turn("other")


async def test_a_cancelled_request_blocks_while_its_handler_goes_on(autojump_clock):
    async with hop(Busy()) as on_hop:
        call = on_hop.client.ask("_slow")
        await on_hop.settle()
        assert not on_hop.component.blocks_request("_slow")

        call.cancel()
        await on_hop.settle()
        assert on_hop.component.blocks_request("_slow")
        assert not on_hop.component.blocks_request("_other")
