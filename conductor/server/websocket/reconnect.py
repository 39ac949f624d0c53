"""Which chain a new WebSocket goes on with, and what becomes of one whose WebSocket is cut.

- One of ours (`relay_scope`) names its connection and how far it has received: it goes on there,
and
  neither its chain nor whoever it speaks for sees that anything was cut.
- Any other client names its connection by the header, or by the cookie once nothing carries that
  connection any more: it finds its chain, where its turns have gone on (`detached_client`). Since
  nobody else knows the id, the header takes over even from a WebSocket that is not found to be dead
  yet.
- Whoever names nothing that is theirs gets a chain of their own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeAlias

import attrs

from conductor.acp import CONNECTION_HEADER
from conductor.network.resumable_stream import RECEIVED_HEADER, RESUME_HEADER, ResumableStream
from conductor.server.access import Refusal
from conductor.server.clients import ClientOwner, ClientRegistry, RemoteClient

__all__ = ["AdmittedWebSocket", "admit_websocket"]

Headers: TypeAlias = Sequence[tuple[str, str]]


@attrs.frozen
class AdmittedWebSocket:
    """A WebSocket that is to be opened for a client."""

    client: RemoteClient
    headers: Headers = ()
    """What it is told besides who it is."""
    received: int = 0
    """How far it has received, if it is one of ours."""


def admit_websocket(
    clients: ClientRegistry, headers: Mapping[str, str], cookie: str | None, owner: ClientOwner
) -> AdmittedWebSocket | Refusal:
    """For whom a WebSocket is."""
    if (received := headers.get(RECEIVED_HEADER)) is not None:
        return _resume(clients.find(headers.get(CONNECTION_HEADER), owner.principal), received)
    if headers.get(RESUME_HEADER) is not None:
        client = clients.admit(owner, "websocket")
        if isinstance(client, Refusal):
            return client
        client.resumable_stream = ResumableStream(client.lines, client.record_activity)
        return AdmittedWebSocket(client, ((RESUME_HEADER, f"{clients.timeouts.keep:g}"),))
    if not clients.draining:  # else the better place is another server
        named = clients.find(headers.get(CONNECTION_HEADER), owner.principal)
        remembered = clients.find(cookie, owner.principal)
        if named is not None and _can_reconnect(named):
            return AdmittedWebSocket(named)
        if remembered is not None and _can_reconnect(remembered) and not remembered.attached:
            return AdmittedWebSocket(remembered)
    client = clients.admit(owner, "websocket")
    if isinstance(client, Refusal):
        return client
    client.chain.allow_reattach()
    return AdmittedWebSocket(client)


def _resume(client: RemoteClient | None, received: str) -> AdmittedWebSocket | Refusal:
    if client is None or client.resumable_stream is None:
        return Refusal(404, "Unknown Acp-Connection-Id: it has ended, or was never here")
    if not received.isascii() or not received.isdecimal() or len(received) > 18:
        return Refusal(400, "Acp-Conductor-Received wants a number")
    return AdmittedWebSocket(
        client, ((RECEIVED_HEADER, str(client.resumable_stream.received)),), int(received)
    )


def _can_reconnect(client: RemoteClient) -> bool:
    """Its chain can go on with another WebSocket, or will be able to once it has lost this one."""
    if client.profile != "websocket" or client.resumable_stream is not None:
        return False
    return client.runs_detached or (client.attached and client.chain.initialized.is_set())
