"""A whole chain in memory: the test plays the client and plays or scripts the components."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any

import attrs
import trio
from trio.testing import wait_all_tasks_blocked

from conductor.chain.chain import Chain
from conductor.chain.components import ChainSpec
from conductor.chain.shutdown import Ending
from conductor.routing.component import Component
from conductor.testing.memory_pair_component import MemoryPairComponent
from conductor.transport.base import CHUNK_SIZE
from conductor.transport.memory import MemoryTransport, memory_pair
from support.peers.wire import MemoryComponent, PassProxy, Peer
from support.plugins import PLUGINS, plugin

SPEC = attrs.fields(ChainSpec)
ANSWER: dict[str, Any] = {"protocolVersion": 1, "agentCapabilities": {}, "authMethods": []}


@attrs.define(eq=False)
class NestedChain(MemoryPairComponent):
    """A chain in proxy mode: what a nested conductor is, without its process."""

    make: Callable[[], Sequence[Component]] = list
    _far: MemoryTransport = attrs.field(init=False)

    def _on_connected(self, transport: MemoryTransport) -> None:
        self._far = transport

    async def _run_peer(self) -> None:
        await Chain(self._far, ChainSpec(self.make, "proxy", is_supervised=True)).run()

    def crash(self) -> None:
        """Break the pipe, as a process does that is killed."""
        self._far.close()

    def _disconnect(self) -> None:
        self._far.close()


@attrs.define(eq=False)
class MemoryChain:
    """The client and the peers of all components."""

    client: Peer
    chain: Chain
    components: list[Component]
    ending: Ending | None = None
    ended: trio.Event = attrs.field(factory=trio.Event)

    def peer(self, index: int) -> Peer:
        """The peer that plays the component at this position of the chain."""
        component = self.components[index]
        assert isinstance(component, MemoryComponent)
        return component.peer

    @property
    def agent(self) -> Peer:
        return self.peer(-1)

    async def send(self, *messages: dict[str, Any]) -> None:
        """Send as the client, and wait until all tasks are blocked: components have peers then."""
        self.client.send(*messages)
        await wait_all_tasks_blocked()

    async def wait_ended(self) -> Ending:
        with trio.fail_after(60):
            await self.ended.wait()
        assert self.ending is not None
        return self.ending


@asynccontextmanager
async def running_chain(
    make: Callable[[], Sequence[Component]] | Sequence[Component],
    *,
    capacity: int = CHUNK_SIZE,
    client: Callable[..., Peer] = Peer,
    **options: Any,
) -> AsyncIterator[MemoryChain]:
    """A running chain of these components; at the end the client sends EOF and all must end."""
    ours, theirs = memory_pair(capacity)
    components: list[Component] = []

    def remember() -> Sequence[Component]:
        components[:] = make() if callable(make) else make
        return components

    spec = {each.name: options.pop(each.name) for each in SPEC if each.name in options}
    chain = Chain(theirs, ChainSpec(remember, **spec), **options)
    harness = MemoryChain(client(ours, "client"), chain, components)

    async def run() -> None:
        harness.ending = await chain.run()
        harness.ended.set()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(harness.client.run)
        nursery.start_soon(run)
        yield harness
        harness.client.start_reading()
        harness.client.close()
        await harness.wait_ended()
        nursery.cancel_scope.cancel()


def proxies(count: int, **options: Any) -> list[MemoryComponent]:
    return [MemoryComponent(f"p{index}", **options) for index in range(count)]


def hops(*kinds: str, agent: type[Peer] = Peer, capacity: int = CHUNK_SIZE) -> list[Component]:
    """A chain that passes everything on. Kinds of proxies: "proxy" and "_proxy" are processes of
    these dialects, "nested" is a chain that contains both and plugins, the others are plugins."""
    return [
        *(_hop(f"p{index}", kind, capacity) for index, kind in enumerate(kinds)),
        MemoryComponent("agent", "agent", make_peer=agent, capacity=capacity),
    ]


def _hop(name: str, kind: str, capacity: int) -> Component:
    if kind in PLUGINS:
        return plugin(name, PLUGINS[kind]())
    if kind == "nested":
        inner = ["proxy", "idle", "_proxy", "handlers"]
        make = lambda: [_hop(f"{name}.{each}", each, capacity) for each in inner]  # noqa: E731
        return NestedChain(name, "proxy", capacity=capacity, make=make)
    return MemoryComponent(name, dialect=kind, make_peer=PassProxy, capacity=capacity)


async def start(harness: MemoryChain) -> None:
    """Initialize a chain of `hops`; the test plays the agent."""
    await harness.send(INITIALIZE)
    harness.agent.answer(await harness.agent.receive(), ANSWER)
    assert (await harness.client.receive())["id"] == 0


def chain_of(count: int, **options: Any) -> Callable[[], list[MemoryComponent]]:
    """`count` proxies and an agent, all played by the test."""
    return lambda: [*proxies(count, **options), MemoryComponent("agent", "agent")]


INITIALIZE: dict[str, Any] = {"id": 0, "method": "initialize", "params": {"protocolVersion": 1}}


async def play_handshake(harness: MemoryChain) -> None:
    """Play the whole handshake: proxies in the dialect in which they are asked."""
    await harness.send(INITIALIZE)
    asked = []
    for component in harness.components:
        if not isinstance(component, MemoryComponent):
            continue
        request = await component.peer.receive()
        asked.append((component, request))
        if component.role == "proxy":
            envelope = request["method"].replace("initialize", "successor")
            inner = {"method": "initialize", "params": request["params"]}
            component.peer.send({"id": "init", "method": envelope, "params": inner})
    for component, request in reversed(asked):
        if component.role == "proxy":
            answer = await component.peer.receive()
            assert answer["id"] == "init"
        component.peer.answer(request, ANSWER)
    answer = await harness.client.receive()
    assert answer == {"id": 0, "result": ANSWER}
