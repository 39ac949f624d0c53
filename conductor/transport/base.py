"""What a connection needs of the outside world.

The hot path does not go through the scheduler: `write_now` takes what the other end takes at once
and never waits, so that messages are routed and written in the step that read them; only a full
pipe is waited for.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Protocol

__all__ = ["CHUNK_SIZE", "Transport"]

CHUNK_SIZE: Final = 65536
"""Bytes asked for at a time, but of a descriptor."""


class Transport(Protocol):
    """A byte stream in each direction. Sides close independently."""

    async def receive(self) -> bytes:
        """The next bytes; `b""` at the end of the stream."""

    def write_now(self, pieces: Sequence[bytes | memoryview]) -> int:
        """Write what fits without waiting; returns how many bytes were taken.

        Raises `conductor.errors.ConnectionClosed` when nobody reads any more.
        """

    async def wait_writable(self) -> None:
        """Return when `write_now` may take more."""

    def peer_closed_write(self) -> bool:
        """Whether the peer has ended its stream, though there may be bytes of it to receive."""

    def peer_closed_read(self) -> bool:
        """Whether nobody reads any more what is written, as far as one can know without writing."""

    def close_writing(self) -> None:
        """End the outgoing stream: the peer reads its end. Idempotent."""

    def close(self) -> None:
        """Give up both directions and what they hold. Idempotent."""
