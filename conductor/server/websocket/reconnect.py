"""Select the client and chain of a new WebSocket: resume, reconnect, or a new client.

- A conductor names its connection and the newest text it has received: the resumable stream
  continues, and neither its chain nor its user sees the cut.
- Another client names its connection by the header, or by the cookie if the connection has no
  socket: it is attached to its chain again, with turns that ran on (`chain.detached_client`). The
  header also replaces a socket that is not detected as lost yet, since the id is a secret.
- Any other WebSocket gets a new client with a chain.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeAlias

import attrs

from conductor.acp import CONNECTION_HEADER
from conductor.network.resumable_stream import RECEIVED_HEADER, RESUME_HEADER, ResumableStream
from conductor.server.access import Refusal
from conductor.server.clients import ClientRegistry, Device, RemoteClient

__all__ = ["AdmittedWebSocket", "admit_websocket"]

Headers: TypeAlias = Sequence[tuple[str, str]]


@attrs.frozen
class AdmittedWebSocket:
    """The client of a new WebSocket."""

    client: RemoteClient
    headers: Headers = ()
    """Additional headers of the handshake response."""
    received: int = 0
    """Number of the newest text that a conductor has received."""


def admit_websocket(
    clients: ClientRegistry, headers: Mapping[str, str], cookie: str | None, device: Device
) -> AdmittedWebSocket | Refusal:
    """Select or create the client of a WebSocket, or refuse it."""
    if (received := headers.get(RECEIVED_HEADER)) is not None:
        return _resume(clients.find(headers.get(CONNECTION_HEADER)), received)
    if headers.get(RESUME_HEADER) is not None:
        client = clients.admit(device, "websocket")
        if isinstance(client, Refusal):
            return client
        client.resumable_stream = ResumableStream(client.lines, client.record_activity)
        return AdmittedWebSocket(client, ((RESUME_HEADER, f"{clients.timeouts.keep:g}"),))
    if not clients.draining:  # else the client had better use another server
        named = clients.find(headers.get(CONNECTION_HEADER))
        remembered = clients.find(cookie)
        if named is not None and _can_reconnect(named):
            return AdmittedWebSocket(named)
        if remembered is not None and _can_reconnect(remembered) and not remembered.attached:
            return AdmittedWebSocket(remembered)
    client = clients.admit(device, "websocket")
    if isinstance(client, Refusal):
        return client
    client.chain.client_end.allow_reattach()
    return AdmittedWebSocket(client)


def _resume(client: RemoteClient | None, received: str) -> AdmittedWebSocket | Refusal:
    if client is None or client.resumable_stream is None:
        return Refusal(404, "Unknown Acp-Connection-Id: it has ended, or was never here")
    if not received.isascii() or not received.isdecimal() or len(received) > 18:
        return Refusal(400, "Acp-Conductor-Received must be a number")
    return AdmittedWebSocket(
        client, ((RECEIVED_HEADER, str(client.resumable_stream.received)),), int(received)
    )


def _can_reconnect(client: RemoteClient) -> bool:
    """Whether its chain accepts another WebSocket, now or after the loss of the current one."""
    if client.profile != "websocket" or client.resumable_stream is not None:
        return False
    return client.runs_detached or (client.attached and client.chain.initialized.is_set())
