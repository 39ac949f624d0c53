"""Supervision of components behind a link: launch, initialize, watch, restart, replay, stop.

`supervisor.SupervisedComponent` is one component;
`component_run.Endpoint` is its process or connection, `component_run.ComponentRun` serves one of
them from start to end. `restart_policy` decides what follows a failure. Modules that wait stand
apart: `initialization` (dialect and handshake), `replay` (after a restart), `deadlines`.
`turn_observer` follows the turns of a link, `turn_enforcement` ends those of one component,
`cancel_watch` the cancelled ones of a chain.
"""
