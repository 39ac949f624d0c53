"""How much of a fast sender's messages a chain takes while a receiver does not read."""

from __future__ import annotations

from functools import partial

import pytest
from support.memory_chain import ANSWER, INITIALIZE, running_chain
from support.peers.wire import MemoryComponent, PassProxy, Peer

from conductor.limits import Limits

BUFFERED = 4 * 1024 * 1024
TEXT = "x" * 10_000


def notes(count):
    return [{"method": "_vendor/note", "params": {"n": n, "text": TEXT}} for n in range(count)]


@pytest.mark.parametrize("count", [1, 3])
async def test_a_proxy_that_floods_an_agent_is_stopped_at_the_limit_of_the_chain(
    count, autojump_clock
):
    """At 5/4 of `max_buffered_bytes`, in a short chain and in a longer one."""

    def make():
        last = MemoryComponent(f"p{count}")
        passing = [MemoryComponent(f"p{k}", make_peer=PassProxy) for k in range(count - 1)]
        return [*passing, last, MemoryComponent("agent", "agent", partial(Peer, reads=False))]

    limits = Limits(max_buffered_bytes=BUFFERED)
    async with running_chain(make, limits=limits) as harness:
        await harness.send(INITIALIZE)
        proxy, agent = harness.peer(-2), harness.agent
        init = await proxy.receive()
        inner = {"method": "initialize", "params": init["params"]}
        proxy.send({"id": "p", "method": "proxy/successor", "params": inner})
        await harness.send()
        agent.answer({"id": 1}, ANSWER)
        assert (await proxy.receive())["id"] == "p"
        proxy.answer(init, ANSWER)
        assert (await harness.client.receive())["id"] == 0

        flood = notes(1000)
        proxy.send(*({"method": "proxy/successor", "params": each} for each in flood))
        size = proxy.unsent()
        await harness.client.receive_nothing()

        taken = size - proxy.unsent()
        assert BUFFERED < taken < BUFFERED * 3 // 2
        agent.start_reading()
        assert [await agent.receive() for _ in range(1001)][1:] == flood
