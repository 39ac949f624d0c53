"""Clients come and go at one `serve`, and nothing grows: processes, zombies, descriptors, threads,
trio tasks, resident memory."""

from __future__ import annotations

import re
import sys
import time
from collections import Counter
from collections.abc import Iterable, Sequence

import attrs
import trio
from chaos.clients import (
    GONE,
    KINDS,
    Client,
    Device,
    Refused,
)
from chaos.measured_server import Census, Server


@attrs.define
class Crowd:
    """Clients, so many at once, each kind in turn."""

    device: Device
    kinds: Sequence[Client]
    served: Counter[str] = attrs.field(factory=Counter)
    failed: Counter[str] = attrs.field(factory=Counter)
    breaches: Counter[str] = attrs.field(factory=Counter)
    """What attacks were given, and should not have been."""

    async def run(self, count: int, at_once: int) -> None:
        """Let `count` clients come and go."""
        slots = trio.Semaphore(at_once)
        async with trio.open_nursery() as nursery:
            for number in range(count):
                await slots.acquire()
                nursery.start_soon(self._one, self.kinds[number % len(self.kinds)], slots)

    async def _one(self, client: Client, slots: trio.Semaphore) -> None:
        name = client.__name__
        try:
            with trio.fail_after(120):
                await client(self.device)
            self.served[name] += 1
        except* AssertionError as group:
            self.breaches[f"{name}: {_first(group)}"[:300]] += 1
        except* (*GONE, Refused, trio.TooSlowError) as group:
            error = _first(group)
            at = time.strftime("%H:%M:%S")
            text = f"{name}, {at}: {type(error).__name__}: {error}"[:700]
            self.failed[text] += 1
            print(text, file=sys.stderr, flush=True)
        finally:
            slots.release()


def _first(group: BaseException) -> BaseException:
    while isinstance(group, BaseExceptionGroup):
        group = group.exceptions[0]
    return group


def growth(before: Census, after: Census, clients: int) -> list[str]:
    """What grew between two censuses, with `clients` clients between them."""
    found = [
        f"{name}: {getattr(before, name)} before, {getattr(after, name)} after"
        for name in ("threads", "tasks")
        if getattr(after, name) > getattr(before, name)
    ]
    if after.processes or after.zombies:
        found.append(f"{after.processes} processes and {after.zombies} zombies are left")
    if after.descriptors > before.descriptors + 2:  # of pools that are filled when needed
        found.append(f"descriptors: {before.descriptors} before, {after.descriptors} after")
    found += memory_growth(before.memory, after.memory, clients)
    return found


def memory_growth(before: float, after: float, clients: int) -> list[str]:
    each = (after - before) / clients
    if each > MEMORY_EACH and after - before > MEMORY_NOISE:
        return [f"memory: {each:,.0f} bytes for each client"]
    return []


MEMORY_EACH = 512
"""Bytes for each client below which growth is the allocator's."""
MEMORY_NOISE = 8 * 2**20
"""Bytes by which the resident memory of an idle server varies."""


async def cohorts(server: Server, *, warm: int, clients: int, at_once: int) -> list[str]:
    """Ordinary clients in two cohorts; what grew, and which clients failed."""
    crowd = Crowd(server.device(), KINDS)
    await crowd.run(warm, at_once)
    before = await server.at_rest()
    await crowd.run(clients, at_once)
    after = await server.at_rest()
    return [*growth(before, after, clients), *explained(crowd.failed, server), *crowd.breaches]


def explained(failed: Iterable[str], server: Server) -> list[str]:
    """Failures of clients, each with what the server logged about the client."""
    lines = []
    for text in failed:
        connection = re.search(r"connection(?:-id': '| )([\w-]{32})", text)
        logged = server.log_of(connection[1]) if connection is not None else []
        lines.append("\n    ".join([text, *logged]))
    return lines
