"""Serve chains to remote clients: every client that connects gets a chain of its own.

- `run`: starts and stops a server; `listen/`: accepts connections; `app`: the ASGI app.
- `http/`, `websocket/`: the two profiles of the transport, mirror images of those in `remote/`.
- `clients.ClientRegistry`: all clients with their chains; `drain`: ends them.
- `access` (authentication, Host, Origin), `session_check` and `session_access` (sessions per
  principal).
- `protocol_sniff`: the first bytes of a stream, before its reader is chosen.
- `limits`, `fair_share`, `active_turns`: use of memory, the event loop, running turns.
- `spares`: processes that wait for the next client (`prewarm: true`).
- `cluster/`: several servers behind a load balancer, with a directory in Redis.

May import: everything below it, `chain`, `plugins`, `proxy`, `network` and `client` included.
"""
