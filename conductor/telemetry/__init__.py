"""OpenTelemetry: spans of what passes a chain, and the trace context in `_meta`.

`propagation` gives each request toward the agent the context of its hop's span. `span_builder`
makes spans of trace records, with the attributes of the semantic conventions (`attributes`), and
`live` exports them. Tracer, ids, sampler, resource, queue and exporter are those of the
OpenTelemetry SDK, which takes 0.3 s to import: without `--otel` none of these modules is imported.
"""
