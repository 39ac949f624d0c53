"""The names of MCP servers over ACP, which messages name by the id of a declaration or connection.

Pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import attrs

__all__ = ["McpServerNames", "server_ids"]


@attrs.define(eq=False)
class McpServerNames:
    """The names of the MCP servers over ACP of all sessions."""

    _names: dict[str, str] = attrs.field(factory=dict)
    """By server id."""
    _connections: dict[str, str] = attrs.field(factory=dict)
    """Server ids, by connection id."""

    def declare(self, params: Mapping[str, Any]) -> list[str]:
        """Record the servers of a set-up request; returns the ids that were unknown."""
        servers = params.get("mcpServers")
        new = []
        for server in servers if isinstance(servers, list) else ():
            for id in server_ids([server]):
                new += [id] if id not in self._names else []
                self._names[id] = str(server.get("name"))
        return new

    def forget(self, ids: Iterable[str]) -> None:
        """Drop servers, and the connections to them."""
        dropped = set(ids)
        for id in dropped:
            self._names.pop(id, None)
        for connection in [key for key, id in self._connections.items() if id in dropped]:
            del self._connections[connection]

    def connect(self, params: Mapping[str, Any], result: Any) -> None:
        """Record a connection."""
        if isinstance(result, dict) and isinstance(result.get("connectionId"), str):
            server = params.get("serverId", params.get("acpId"))
            self._connections[result["connectionId"]] = str(server)

    def disconnect(self, params: Mapping[str, Any]) -> None:
        """Drop a connection."""
        self._connections.pop(str(params.get("connectionId")), None)

    def name_for(self, params: Mapping[str, Any]) -> str:
        """The name of the server that an `mcp/message` is for; empty if it is not known."""
        connection = params.get("connectionId")
        server = self._connections.get(str(connection)) if connection else params.get("serverId")
        return self._names.get(str(server), "")


def server_ids(declared: Iterable[Any]) -> list[str]:
    """The ids of the servers over ACP among declarations; one binding calls them `id`."""
    return [
        str(server.get("serverId", server.get("id")))
        for server in declared
        if isinstance(server, dict) and server.get("type") == "acp"
    ]
