"""Parts shared by both ends of a network connection: `remote/` (client) and `server/`.

- `address`, `tls`, `cookies`, `keepalive`, `tcp`: open a byte stream to a URL.
- `accept`, `hypercorn_connection`: connections of clients.
- `websocket` (the interface), `close_handshake`, `sse`: framing of messages.
- `line_channel`: the network end of a memory pair, in lines.
- `sequence_numbers` (pure), `resumable_stream`: resume a cut connection without loss.
- `backoff`: delays between attempts to reconnect.
"""
