"""One JSON-RPC peer, without I/O: bytes in, messages out, and back.

`Connection` (`connection.py`) is the state of a peer: message ids, in-flight requests, batches.
`BlockSplitter` (`line_framing.py`) cuts chunks into lines, `decode` (`codec.py`) turns a line into
a `Message`, a `Batch` or `Malformed`, `NotificationBatch` is a run of notifications that is routed
as one, `WriteBuffer` holds unwritten bytes. `json_object.py` reads and writes the members of raw
JSON objects. All of them are pure; a task waits for a response with `AwaitedResponse`
(`awaited_response.py`).
"""
