"""Streamable HTTP, server end: POST for messages of the client, event streams for the others.

- `endpoint`: answers each HTTP request; `request_response`: body limits, response (ASGI).
- `parse_request` (pure): validates a POST.
- `connection.ServerHttpConnection`: state of one client; `stream_router` (pure): message -> stream.
- `mailboxes`: queued messages per stream.
"""
