"""Run a chain in the current process, with a client of the same process.

    async with attach(Client, spec) as attached:
        await attached.client.initialize()
        session = await attached.client.new_session("/project")
        await attached.client.prompt(session, "hello")

The client and the `Chain` are connected by a pair of memory transports. Used by `acp-conductor
prompt`, `check --start` and the test kit.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any, Generic, TypeVar

import attrs
import trio

from conductor.background_tasks import background_tasks
from conductor.chain.build import components_of, spec_of
from conductor.chain.chain import Chain
from conductor.chain.components import ChainSpec
from conductor.chain.shutdown import Ending
from conductor.chainfile.model import ChainFile
from conductor.client.acp_client import Client
from conductor.routing.component import Component
from conductor.tracing.recorder import TraceRecorder
from conductor.transport.memory import memory_pair

__all__ = ["AttachedClient", "attach", "attach_file"]

ClientT = TypeVar("ClientT", bound=Client)


@attrs.define(eq=False)
class AttachedClient(Generic[ClientT]):
    """A client and its chain."""

    client: ClientT
    chain: Chain
    ending: Ending | None = None
    """Why the chain ended; None while it runs."""
    ended: trio.Event = attrs.field(factory=trio.Event)


@asynccontextmanager
async def attach(
    client: Callable[..., ClientT],
    spec: ChainSpec,
    *,
    recorder: TraceRecorder | None = None,
) -> AsyncIterator[AttachedClient[ClientT]]:
    """Run a chain of `spec`, with `client(transport)` as its client.

    At the end of the block the client closes its stream and the chain stops in order.
    """
    ours, theirs = memory_pair()
    chain = Chain(theirs, spec, recorder=recorder)
    attached = AttachedClient(client(ours), chain)
    async with background_tasks() as nursery, attached.client.open():
        nursery.start_soon(_run, attached)
        try:
            yield attached
        finally:
            attached.client.close()
            await attached.ended.wait()


@asynccontextmanager
async def attach_file(
    client: Callable[..., ClientT],
    file: ChainFile,
    *,
    made: Callable[[Sequence[Component]], None] = lambda components: None,
    recorder: TraceRecorder | None = None,
) -> AsyncIterator[AttachedClient[ClientT]]:
    """`attach` for a chain file with an agent.

    `made` is called with the components before they start.
    """

    def make() -> list[Component]:
        components = components_of(file)
        made(components)
        return components

    async with attach(client, spec_of(file, make), recorder=recorder) as attached:
        yield attached


async def _run(attached: AttachedClient[Any]) -> None:
    try:
        attached.ending = await attached.chain.run()
    finally:
        attached.ended.set()
