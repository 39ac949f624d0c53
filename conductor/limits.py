"""Limits of a chain. Exceeding one is an error only for the peer that does."""

from __future__ import annotations

import msgspec

__all__ = ["Limits"]


class Limits(msgspec.Struct, frozen=True):
    """`limits:` of a chain file."""

    max_message_bytes: int = 256 * 1024 * 1024
    """The longest message, in bytes; a longer one is refused."""
    max_open_requests: int = 5_000
    """Requests of one peer that may be open at a time; one more is refused. Each takes 0.3 kB for
    every program that it went through, and 7 kB where a plugin's handler waits for the answer."""
    max_batch: int = 10_000
    """Members of a JSON-RPC batch; a larger one is refused. At most 100,000."""
    max_buffered_bytes: int = 48 * 1024 * 1024
    """What may wait for peers that do not read, in bytes, all together: each has an equal share,
    and a writer to a peer with a full share is not read, not even a proxy. With what it takes
    to hold that, the conductor stays under 64 MiB."""
    max_sessions: int = 10_000
    """Open sessions of one connection; one more is refused."""
    max_mcp_connections: int = 64
    """MCP connections of the agent to one server of a session, through the bridge."""
    max_mcp_sessions: int = 16
    """MCP sessions over HTTP with one server of a session, through the bridge; agents have one, or
    one more after a failure."""
    max_session_log_bytes: int = 8 * 1024 * 1024
    """What is remembered of the set-up of sessions for a restart, in bytes, of the client and of
    each component. Beyond it the oldest sessions cannot be restored: a restart loses them. One
    `initialize` of a proxy that is longer is refused."""
    max_initialize_bytes: int = 256 * 1024
    """Bytes of the params of the client's `initialize`; longer ones are refused. They are decoded
    in one step: 2.6 s for 8 MiB of small members, in which nothing else is done."""
