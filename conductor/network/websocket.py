"""The WebSocket interface, for clients and servers and for each library below."""

from __future__ import annotations

from typing import Protocol

__all__ = ["WebSocket", "WebSocketClosed"]


class WebSocketClosed(Exception):
    """The socket is closed or lost. `code`: from the close frame; 1006 if there was none."""

    def __init__(self, code: int, reason: str | None = None) -> None:
        super().__init__(f"closed ({code}{f', {reason}' if reason else ''})")
        self.code = code
        self.reason: str = reason or ""


class WebSocket(Protocol):
    """One WebSocket, for text messages."""

    async def receive(self) -> str | None:
        """The next text message; `None` when the socket is closed. Binary ones are ignored."""

    async def send(self, text: str) -> None:
        """Send a text message, waiting for room. Raises `WebSocketClosed`."""

    async def ping(self, deadline: float) -> None:
        """Check that the peer responds. Raises `WebSocketClosed` after `deadline` seconds."""

    async def close(self, code: int = 1000, reason: str = "") -> None:
        """Send a close frame and wait briefly for the peer's. Idempotent."""
