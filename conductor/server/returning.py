"""Which chain a new WebSocket goes on with, and what becomes of one whose WebSocket is cut.

- One of ours (`carrying`) names its connection and how far it has received: it goes on there, and
  neither its chain nor whoever it speaks for sees that anything was cut.
- Any other client names its connection by the header, or by the cookie once nothing carries that
  connection any more: it finds its chain, where its turns have gone on (`parking`). Since nobody
  else knows the id, the header takes over even from a WebSocket that is not found to be dead yet.
- Whoever names nothing that is theirs gets a chain of their own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeAlias

import attrs

from conductor.remote.carrying import RECEIVED, RESUME, Carrier
from conductor.server.access import Refusal
from conductor.server.remote_clients import Owner, RemoteClient, RemoteClients
from conductor.server.requests import CONNECTION

__all__ = ["Arrival", "arrive"]

Headers: TypeAlias = Sequence[tuple[str, str]]


@attrs.frozen
class Arrival:
    """A WebSocket that is to be opened for a client."""

    client: RemoteClient
    headers: Headers = ()
    """What it is told besides who it is."""
    received: int = 0
    """How far it has received, if it is one of ours."""


def arrive(
    clients: RemoteClients, headers: Mapping[str, str], cookie: str | None, owner: Owner
) -> Arrival | Refusal:
    """For whom a WebSocket is."""
    if (received := headers.get(RECEIVED)) is not None:
        return _go_on(clients.find(headers.get(CONNECTION), owner.principal), received)
    if headers.get(RESUME) is not None:
        client = clients.admit(owner, "websocket")
        if isinstance(client, Refusal):
            return client
        client.carrier = Carrier(client.lines, client.heard)
        return Arrival(client, ((RESUME, f"{clients.patience.keep:g}"),))
    if not clients.draining:  # else the better place is another server
        named = clients.find(headers.get(CONNECTION), owner.principal)
        remembered = clients.find(cookie, owner.principal)
        if named is not None and _may_return(named):
            return Arrival(named)
        if remembered is not None and _may_return(remembered) and not remembered.attached:
            return Arrival(remembered)
    client = clients.admit(owner, "websocket")
    if isinstance(client, Refusal):
        return client
    client.chain.expect_return()
    return Arrival(client)


def _go_on(client: RemoteClient | None, received: str) -> Arrival | Refusal:
    if client is None or client.carrier is None:
        return Refusal(404, "Unknown Acp-Connection-Id: it has ended, or was never here")
    if not received.isascii() or not received.isdecimal() or len(received) > 18:
        return Refusal(400, "Acp-Conductor-Received wants a number")
    return Arrival(client, ((RECEIVED, str(client.carrier.received)),), int(received))


def _may_return(client: RemoteClient) -> bool:
    """Its chain can go on with another WebSocket, or will be able to once it has lost this one."""
    if client.profile != "websocket" or client.carrier is not None:
        return False
    return client.parked or (client.attached and client.chain.initialized.is_set())
