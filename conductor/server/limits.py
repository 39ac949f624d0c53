"""How much remote clients may use of a server, and how long it waits for them."""

from __future__ import annotations

import attrs

__all__ = ["ServerLimits", "ServerTimeouts"]


@attrs.frozen
class ServerLimits:
    """Going over one is refused with 429 or 503, and hurts nobody but whoever did it."""

    clients: int = 2000
    """Remote clients at a time, those that are cut off and may return included."""
    clients_each: int = 200
    """Of one principal; of one address, where there is no authentication."""
    sessions_each: int = 10_000
    """Sessions that one principal may have with the agents (`owning`)."""
    sockets: int = 8000
    """TCP connections at a time."""
    sockets_each: int = 1000
    """Of one address."""
    streams: int = 256
    """Session-scoped streams of one client."""
    buffered_bytes: int = 4 * 1024 * 1024
    """What may wait for streams of one client that nobody reads; beyond it the chain waits."""
    message_bytes: int = 256 * 1024 * 1024
    """The longest message."""
    body_bytes: int = 512 * 1024 * 1024
    """Of all bodies together that are being received."""
    body_bytes_each: int = 384 * 1024 * 1024
    """Of those of one principal; of one address, where there is no authentication."""
    header_bytes: int = 64 * 1024


@attrs.frozen
class ServerTimeouts:
    """In seconds."""

    headers: float = 10.0
    """For a TLS handshake, and for the head of a request."""
    ping_interval: float = 20.0
    ping_timeout: float = 20.0
    """How long a peer may be silent once it was asked to show that it is there."""
    keep: float = 60.0
    """How long the chain of a client that was cut off is kept for its return."""
    idle: float = 86400.0
    """How long a client may say and be told nothing."""
    keep_alive: float = 15.0
    """Between comments on a stream that has nothing to tell."""
    drain: float = 30.0
    """How long turns may go on once the server is to end."""
