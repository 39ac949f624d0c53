"""Routing: which neighbour gets a message, and in which form. Everything here is pure.

A component has two ports (`port.Port`), one toward the client and one toward the agent. Connecting
the ports of two components makes them neighbours; a message put to a port is for that component. A
component reached over a connection is a `link.Link` with one or two ports (`link_port.LinkPort`);
`control` handles the messages that are addressed to the conductor itself.

- `component`: the interfaces `Component` (a proxy or the agent) and `ComponentHost` (its chain)
- `envelope`, `handshake`, `capabilities`: `proxy/successor`, dialects, initialization
- `message_queue`: messages held back, counted in bytes
- `session_log`, `session_settings`, `restart_marker`: messages replayed to a restarted component
- `observers`: `LinkObserver`, the base of what watches a link
- `notices`, `failure_errors`, `server_names`, `proxy_meta`: what the conductor adds or removes

May import: errors, limits, redaction, chainfile, jsonrpc, acp, transport (types only).
"""
