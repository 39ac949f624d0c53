"""Limits of a chain. Only the peer that exceeds a limit gets an error."""

from __future__ import annotations

from typing import Final

import msgspec

__all__ = ["MAX_DEPTH", "Limits"]

MAX_DEPTH: Final = 128
"""Levels of nested arrays and objects in JSON that is decoded to Python values; deeper is an error
of its sender. serde_json, with which many peers read, has the same limit. Recursive functions take
up to three calls for each level, of the thousand that Python allows."""


class Limits(msgspec.Struct, frozen=True):
    """`limits:` of a chain file."""

    max_message_bytes: int = 256 * 1024 * 1024
    """The longest message, in bytes; a longer one is refused."""
    max_open_requests: int = 5_000
    """Unanswered requests of one peer; one more is refused. Each takes 0.3 kB per hop, and 7 kB
    where the handler of an in-process proxy waits for the response."""
    max_batch: int = 10_000
    """Members of a JSON-RPC batch; a larger one is refused."""
    max_buffered_bytes: int = 48 * 1024 * 1024
    """Bytes buffered for all peers that do not read. Each has an equal share; a writer to a peer
    with a full share is not read, not even a proxy. Overhead included, the conductor stays under
    64 MiB."""
    max_sessions: int = 10_000
    """Open sessions of one connection; one more is refused."""
    max_mcp_connections: int = 64
    """MCP connections of the agent to one server of a session, through the bridge."""
    max_session_log_bytes: int = 8 * 1024 * 1024
    """Bytes of session set-up messages that are kept to restore sessions after a restart; the
    client and each component have this much of their own. Beyond it the messages of the oldest
    sessions are dropped: these sessions go on, but a restart loses them. An `initialize` of a proxy
    that is longer is refused."""
    max_initialize_bytes: int = 256 * 1024
    """Bytes of the params of the client's `initialize`; longer ones are refused. They are decoded
    in one step that blocks the event loop: 2.6 s for 8 MiB of small members."""
