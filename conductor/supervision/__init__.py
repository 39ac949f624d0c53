"""Supervision of components behind a link: launch, initialize, watch, restart, replay, stop.

`supervisor.SupervisedComponent` is one component, on the base `link_component.LinkComponent`;
`endpoint.Endpoint` is its process or connection, `component_run.ComponentRun` serves one of them
from start to end. Decisions are pure: `states` (the state table), `restart_policy`,
`stall_detector`, `cancel_timeouts`, `cancel_arbiter`. Modules that wait stand apart:
`initialization` (the handshake), `replay` (after a restart), `stall_monitor`, `cancel_monitor`,
`deadline_timer`; `turn_enforcement` applies the timeouts.

May import: routing, transport, jsonrpc, acp, chainfile; not plugins, chain, server or client.
"""
