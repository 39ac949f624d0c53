"""The envelopes of MCP over ACP in a replay: traces have the messages without them. Pure.

A connection (`mcp/connect`) is in the trace, so its messages are those with its id. All others are
of the stateless binding, where a request has an id of its own (`requestId`) and its notifications
have that one.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final, Literal

from conductor.testing.replay_values import ReplayValues
from conductor.tracing.conversation import End, RecordedMessage

__all__ = ["McpEnvelopes", "unwrapped"]

_MESSAGE: Final = "mcp/message"
_SERVERS: Final = ("serverId", "connectionId", "acpId")


class McpEnvelopes:
    """Puts messages into envelopes."""

    def __init__(self, messages: Iterable[RecordedMessage]) -> None:
        self._connections = {
            each.payload["connectionId"]
            for each in messages
            if each.kind == "response"
            and each.method == "mcp/connect"
            and isinstance(each.payload, dict)
            and "connectionId" in each.payload
        }
        self._requests: dict[str, str] = {}
        """By recorded server: the `requestId` of its last stateless request."""

    def wrapped(self, message: RecordedMessage, values: ReplayValues) -> tuple[str, Any]:
        """Method and params as they are sent, with the ids of the live conversation."""
        params = values.live(message.payload)
        server = message.mcp_server
        if message.protocol != "mcp" or server is None:
            return message.method, params
        inner = {"method": message.method} | ({} if params is None else {"params": params})
        live = values.live(server)
        if server in self._connections:
            return _MESSAGE, {"connectionId": live, **inner}
        if message.kind == "request":
            self._requests[server] = f"replay-{message.n}"
        request = self._requests.get(server, "replay")
        return _MESSAGE, {"serverId": live, "requestId": request, **inner}


def unwrapped(
    kind: Literal["request", "notification"], sender: End, method: str, params: Any, n: int | None
) -> RecordedMessage:
    """A live message as a recording has it: that in `mcp/message`, others as they are."""
    if method != _MESSAGE or not isinstance(params, dict):
        return RecordedMessage(kind, sender, n, method, params, n=n or 0)
    server = next((params[name] for name in _SERVERS if name in params), "")
    method, params = str(params.get("method", "")), params.get("params")
    return RecordedMessage(
        kind, sender, n, method, params, n=n or 0, mcp_server=str(server), protocol="mcp"
    )
