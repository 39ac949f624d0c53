"""WebSocket, server end.

- `connection`: selects the client of a WebSocket, and relays its lines.
- `bounded`, `partial_message`: limits while a message is received.
"""
