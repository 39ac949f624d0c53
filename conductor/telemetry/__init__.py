"""OpenTelemetry: spans of what passes a chain, and the trace context in `_meta`.

`trace_context` reads and writes `traceparent` and `tracestate`; `propagation` gives each request
toward the agent the span of its hop. `span_builder` makes spans of trace records, with the
attributes of the semantic conventions (`attributes`). `sdk` gives them to the OpenTelemetry SDK.
Without `--otel` none of these modules is imported.

May import: what `tracing` may import, and `tracing`.
"""
