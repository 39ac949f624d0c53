"""Traces: what passed between the components of a chain, recorded, written and read.

`recorder.TraceRecorder` has a stage (`routing.trace`) in each port of a component, and keeps the
last messages that passed in memory (the flight recorder); `trace_writer` encodes them in a thread,
for `trace_file` and other listeners: `encoder` makes lines of entries, and `masking` masks their
secrets. `records` is the format of the file, `reader` reads it, and `conversation` takes from it
what is replayed. The `trace` commands (`conductor.cli`) show, check, compare and replay files.
"""
