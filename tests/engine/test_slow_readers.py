"""A slow reader slows its source down: what is read for it stays bounded, and nothing is lost."""

from __future__ import annotations

from functools import partial

import pytest
from support.memory_chain import ANSWER, INITIALIZE, hops, running_chain
from support.peers.wire import MemoryComponent, Peer

from conductor.limits import Limits
from conductor.transport.io_loop import HIGH_WATERMARK

BOUND = HIGH_WATERMARK + 500_000
"""Bytes: what may wait for one reader, and what pipes and one read hold."""
NOTES = [
    b'{"jsonrpc":"2.0","method":"_x/note","params":{"n":%d,"text":"%b"}}\n' % (n, b"x" * 10_000)
    for n in range(600)
]
FLOOD = b"".join(NOTES)
SLOW = partial(Peer, reads=False)
"""It can answer what it has not read: requests to a component are numbered from 1."""


def taken(sender):
    """Bytes of the flood that the conductor has read."""
    return len(FLOOD) - sender.unsent()


async def received(peer):
    return [await peer.receive_line() + b"\n" for _ in NOTES]


@pytest.mark.parametrize("kinds", [[], ["_proxy"], ["idle", "handlers"], ["nested"]], ids=" ".join)
async def test_an_agent_that_does_not_read_slows_the_client_down(kinds, autojump_clock):
    limits = Limits(max_buffered_bytes=6_000_000)
    async with running_chain(hops(*kinds, agent=SLOW), limits=limits) as harness:
        await harness.send(INITIALIZE)
        harness.agent.answer({"id": 1}, ANSWER)
        await harness.client.receive()
        harness.client.send_bytes(FLOOD)
        harness.agent.send({"method": "_x/back"})
        await harness.send()

        assert taken(harness.client) < 2 * HIGH_WATERMARK
        assert await harness.client.receive_all() == [{"method": "_x/back"}]
        harness.agent.start_reading()
        assert (await harness.agent.receive())["method"] == "initialize"
        assert await received(harness.agent) == NOTES


@pytest.mark.parametrize("flooding", ["client", "agent"])
async def test_a_proxy_that_does_not_read_slows_both_sides_down(flooding, autojump_clock):
    slow = MemoryComponent("p0", dialect="proxy", make_peer=SLOW)
    async with running_chain([slow, MemoryComponent("agent", "agent")]) as harness:
        await harness.send(INITIALIZE)
        inner = {"method": "initialize", "params": INITIALIZE["params"]}
        slow.peer.send({"id": "i", "method": "proxy/successor", "params": inner})
        harness.agent.answer(await harness.agent.receive(), ANSWER)
        slow.peer.answer({"id": 1}, ANSWER)
        await harness.client.receive()
        sender = getattr(harness, flooding)
        sender.send_bytes(FLOOD)
        await harness.send()

        assert taken(sender) < BOUND
        slow.peer.start_reading()
        while sender.unsent():
            await harness.send()
        assert len(await slow.peer.receive_all()) == len(NOTES) + 2


@pytest.mark.parametrize("kinds", [["updates"], ["nested"]], ids=" ".join)
async def test_a_client_that_does_not_read_slows_the_agent_down_through_any_proxy(
    kinds, autojump_clock
):
    limits = Limits(max_buffered_bytes=6_000_000)
    async with running_chain(hops(*kinds), client=SLOW, limits=limits) as harness:
        await harness.send(INITIALIZE)
        harness.agent.answer(await harness.agent.receive(), ANSWER)
        updates = FLOOD.replace(b"_x/note", b"session/update")
        harness.agent.send_bytes(updates)
        await harness.send()

        assert len(updates) - harness.agent.unsent() < 2 * BOUND
        harness.client.start_reading()
        assert (await harness.client.receive())["id"] == 0
        assert b"".join(await received(harness.client)) == updates
