"""Routing: which neighbour gets a message, and in which form. It does no I/O and never waits.

A component has two ports (`port.Port`), one toward the client and one toward the agent. Connecting
the ports of two components makes them neighbours; a message put to a port is for that component. A
component reached over a connection is a `link.Link` with one or two ports (`link.LinkPort`).
What the conductor itself does to the messages of a port are stages; `stage.ORDER` is their table.
Read `port`, `link`, `stage`.

- `component`: the interfaces `Component` (a proxy or the agent) and `ComponentHost` (its chain)
- `envelope`, `capabilities`: `proxy/successor`, dialects, initialization
- `message_queue`: messages held back, counted in bytes
- `session_log`, `proxy_meta`: messages replayed to a restarted component
- stages: `trace`, `session_branches`, `message_queue`, `failure_errors`,
  `session_log`, `capabilities`, `session_settings`, `session_names`, `proxy_meta`; others
  are in `chain`, `supervision`, `plugins` and `telemetry`
- `notices`, `failure_errors`, `proxy_meta`: what the conductor adds
"""
