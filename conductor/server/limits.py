"""Limits and timeouts of a server for remote clients."""

from __future__ import annotations

import attrs

__all__ = ["ServerLimits", "ServerTimeouts"]


@attrs.frozen
class ServerLimits:
    """Beyond a limit the request is refused (429, 503, 413); other clients are not affected."""

    clients: int = 2000
    """Concurrent clients, detached ones included."""
    clients_each: int = 200
    """Concurrent clients of one address."""
    sockets: int = 8000
    """Concurrent TCP connections."""
    sockets_each: int = 1000
    """Concurrent TCP connections of one address."""
    streams: int = 256
    """Session streams of one client."""
    buffered_bytes: int = 4 * 1024 * 1024
    """Bytes queued for the streams of one client; beyond it the chain is not read."""
    message_bytes: int = 256 * 1024 * 1024
    """Size of a message."""
    body_bytes: int = 512 * 1024 * 1024
    """Sum of all request bodies and WebSocket messages being received."""
    body_bytes_each: int = 384 * 1024 * 1024
    """The same for one address."""
    header_bytes: int = 64 * 1024
    """Size of the head of a request."""


@attrs.frozen
class ServerTimeouts:
    """Timeouts in seconds."""

    headers: float = 10.0
    """For a TLS handshake, the head of a request, and the next part of a body."""
    ping_interval: float = 20.0
    """Between pings on a WebSocket."""
    ping_timeout: float = 20.0
    """For the response to a ping."""
    keep: float = 60.0
    """For a detached client to reconnect."""
    idle: float = 86400.0
    """Without messages in either direction."""
    keep_alive: float = 15.0
    """Between comments on an idle event stream."""
    drain: float = 30.0
    """For running turns to end during a drain."""
