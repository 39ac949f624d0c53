"""Session updates and a set-up that the tests of event handlers share."""

from __future__ import annotations

CALL = {"sessionUpdate": "tool_call", "toolCallId": "1", "title": "Read a", "kind": "read"}
DONE = {"sessionUpdate": "tool_call_update", "toolCallId": "1", "status": "completed"}
PLAN = {"sessionUpdate": "plan", "entries": []}


async def opened(client):
    await client.initialize()
    return await client.new_session("/work")
