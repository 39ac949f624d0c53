"""Serve chains to remote clients: every client that connects gets a chain of its own.

- `run`: starts and stops a server; `listen/`: accepts connections; `app`: the ASGI app.
- `http/`, `websocket/`: the two profiles of the transport, mirror images of those in `remote/`.
- `clients.ClientRegistry`: all clients with their chains.
- `access`: authentication, Host, Origin. All tokens and certificates are devices of one user.
- `protocol_sniff`: the first bytes of a stream, before its reader is chosen.
- `limits`: use of memory.
"""
