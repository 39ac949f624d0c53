"""Parts shared by both ends of a network connection: `remote/` (client) and `server/`.

- `address`, `tcp`, `sockets`: open a byte stream to a URL; accept one.
- `hypercorn_connection`, `peer_user`: connections of clients.
- `websocket`, `sse`: framing of messages.
- `sequence_numbers` (pure), `resumable_stream`: resume a cut connection without loss.
- `backoff`, `running_time`: delays between attempts to reconnect, deadlines for the other end.
- `bounded_http`: HTTP clients that keep no more of an answer than they may.
"""
