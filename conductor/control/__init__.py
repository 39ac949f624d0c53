"""Running conductors of one user find each other: each listens on a Unix socket.

The socket is in a private runtime directory (`directory`), is served by a thread (`server`), so
that it answers while a plugin blocks the event loop, and is opened shortly after the start
(`process`), so that a start takes no longer. `registry` has the chains of this process; `client`
asks another conductor; `leftovers` and `temporary_directories` find what killed ones left.

`raw_streams` writes the bytes of components (`--debug-dir`).

May import: errors, log, tracing, transport, supervision (the `Endpoint`).
"""
