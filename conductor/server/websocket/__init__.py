"""WebSocket, server end.

- `connection`: relays the lines of a client over a WebSocket; `reconnect`: selects its client.
- `bounded`, `partial_message`: limits while a message is received.
"""
