"""WebSocket, server end: limits while a message is received, relaying, reconnecting."""
