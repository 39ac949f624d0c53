"""Metrics of a server for Prometheus: counted while messages pass, read when they are asked for.

`counters` counts what passes the hops of all chains; `exposition` writes the counters, and what the
clients' chains are doing now, as Prometheus text, and serves it, with `/healthz`, at an address of
its own. Labels have few values: component names, methods of the schema, kinds of outcomes. Nothing
in them names a client, a session or a path. Without `--metrics`, neither module is imported.
"""
