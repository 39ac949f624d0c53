"""Clients come and go at one `serve`, and nothing grows: processes, zombies, descriptors, threads,
trio tasks, resident memory."""

from __future__ import annotations

import trio
from chaos.clients import GONE, KINDS, Client, Device, Refused
from chaos.measured_server import Census, Server

MEMORY_EACH = 512
"""Bytes for each client below which growth is the allocator's."""
MEMORY_NOISE = 8 * 2**20
"""Bytes by which the resident memory of an idle server varies."""


async def crowd(device: Device, count: int, at_once: int) -> list[str]:
    """Let `count` clients come and go, so many at once, each kind in turn; which of them failed."""
    failed: list[str] = []
    slots = trio.Semaphore(at_once)

    async def one(client: Client) -> None:
        try:
            with trio.fail_after(120):
                await client(device)
        except* (*GONE, Refused, trio.TooSlowError) as group:
            failed.append(f"{client.__name__}: {group.exceptions!r}"[:700])
        finally:
            slots.release()

    async with trio.open_nursery() as nursery:
        for number in range(count):
            await slots.acquire()
            nursery.start_soon(one, KINDS[number % len(KINDS)])
    return failed


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
    grown = after.memory - before.memory
    if grown > max(MEMORY_EACH * clients, MEMORY_NOISE):
        found.append(f"memory: {grown / clients:,.0f} bytes for each client")
    return found


async def cohorts(server: Server, *, warm: int, clients: int, at_once: int) -> list[str]:
    """Clients in two cohorts; what grew, and which clients failed."""
    failed = await crowd(server.device(), warm, at_once)
    before = await server.at_rest()
    failed += await crowd(server.device(), clients, at_once)
    after = await server.at_rest()
    return [*growth(before, after, clients), *failed]
