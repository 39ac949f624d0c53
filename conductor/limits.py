"""Bounds on what a chain may use. Going over one is an error for whoever did it, nobody else."""

from __future__ import annotations

import attrs

__all__ = ["Limits"]


@attrs.frozen
class Limits:
    """`limits:` of a chain file."""

    max_message_bytes: int = 256 * 1024 * 1024
    """The longest message, in bytes; a longer one is refused."""
    max_open_requests: int = 200_000
    """Requests of one peer that may be open at a time; one more is refused."""
    max_batch: int = 10_000
    """Members of a JSON-RPC batch; a larger one is refused."""
    max_buffered_bytes: int = 64 * 1024 * 1024
    """What may wait for one peer that does not read, in bytes; whoever writes to it, a proxy too,
    is not read meanwhile."""
