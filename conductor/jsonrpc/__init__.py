"""One JSON-RPC peer: its ids, its open requests, what waits to be written; and the tasks for it."""
