"""Components on other machines, seen by the conductor as if they were child processes.

- `transport.RemoteTransport`: one connection; pairs a memory transport with a relay function. Texts
  for refusals.
- `websocket`, `streamable_http`, `unix`: `run_transport`, the relay function of each network. That
  of `websocket` resumes a connection to a conductor after a cut.
- `message_meta`, `ssh` (pure): message routing over HTTP, command lines.

The mirror image is `server/`.
"""
