"""What a WebSocket is to us, whoever holds its other end and whatever library carries it."""

from __future__ import annotations

from typing import Protocol

__all__ = ["WebSocket", "WebSocketClosed"]


class WebSocketClosed(Exception):
    """The socket is closed or lost. `code` is that of the close frame; 1006: there was none."""

    def __init__(self, code: int, reason: str | None = None) -> None:
        super().__init__(f"closed ({code}{f', {reason}' if reason else ''})")
        self.code = code
        self.reason = reason or ""


class WebSocket(Protocol):
    """One WebSocket: text in, text out."""

    async def receive(self) -> str | None:
        """The next text message; None when the socket is closed. A binary one is ignored."""

    async def send(self, text: str) -> None:
        """Send a text message, waiting for room. Raises `WebSocketClosed`."""

    async def ping(self, deadline: float) -> None:
        """Have the peer show that it is there: raises `WebSocketClosed` after `deadline`
        seconds."""

    async def close(self, code: int = 1000, reason: str = "") -> None:
        """Say goodbye, in this way; returns soon, whether or not the peer answers. Idempotent."""
