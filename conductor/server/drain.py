"""End a server's clients: in order, with time for turns to finish (`drain`), or now (`kill`)."""

from __future__ import annotations

from typing import Final

import trio

from conductor.server.clients import ClientRegistry

__all__ = ["drain", "kill"]

_POLL_INTERVAL: Final = 0.1
_CLOSE_TIMEOUT: Final = 2.0
"""Seconds for the carriers of clients to deliver the last messages and the close."""


async def drain(clients: ClientRegistry) -> None:
    """Refuse new clients, wait for turns to finish, then end every chain in order.

    A client without a running turn or an open request is ended at once; after `timeouts.drain`
    seconds all are. Returns when all chains have ended.
    """
    clients.draining = True
    with trio.move_on_after(clients.timeouts.drain):
        while clients.by_id:
            for client in list(clients.by_id.values()):
                if not client.busy:
                    client.end()
            await trio.sleep(_POLL_INTERVAL)
    left = list(clients.by_id.values())
    for client in left:
        client.end()
    for client in left:
        await client.ended.wait()
    with trio.move_on_after(_CLOSE_TIMEOUT):
        for client in left:
            await client.detached.wait()


def kill(clients: ClientRegistry) -> None:
    """End every chain now: its processes are killed and its lines are dropped."""
    clients.draining = True
    for client in list(clients.by_id.values()):
        client.chain.kill()
        client.lines.close()
