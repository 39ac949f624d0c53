"""`mcp_tools`: filters, renames and describes the tools of MCP servers over ACP.

Place it between the server and the agent. Denied tools are removed from `tools/list` results,
others are renamed, and a call to a hidden tool is refused as an unknown tool.

    - use: mcp_tools
      with:
        deny: [delete_*]
        prefix: notes_
        rename: {find: search}
        describe: {find: Search the notes.}
"""

from __future__ import annotations

import fnmatch
from collections.abc import Sequence
from typing import Any, Final

import attrs

from conductor.proxy import Proxy, RequestError, on

__all__ = ["McpTools"]

_INVALID_PARAMS: Final = -32602


@attrs.define
class McpTools(Proxy):
    """Allow, deny, rename and describe the tools of MCP servers.

    `allow` (empty: all) and `deny`, which overrides it, are globs (`delete_*`) for the server's
    tool names. `rename` and `describe` have the server's tool names as keys; `prefix` is put before
    names that are not renamed. `servers` (empty: all) are the names of the MCP servers affected.
    """

    allow: tuple[str, ...] = ()
    deny: tuple[str, ...] = ()
    rename: dict[str, str] = attrs.field(factory=dict)
    prefix: str = ""
    describe: dict[str, str] = attrs.field(factory=dict)
    servers: tuple[str, ...] = ()
    _declared: dict[str, str] = attrs.field(factory=dict, init=False)
    """Server names, by server id."""
    _connections: dict[str, str] = attrs.field(factory=dict, init=False)
    """Server ids, by connection id."""

    @on("session/new")
    @on("session/load")
    @on("session/resume")
    @on("session/fork")
    async def note_servers(self, params: dict[str, Any], forward: Any) -> Any:
        for server in params.get("mcpServers") or ():
            if isinstance(server, dict) and server.get("type") == "acp":
                id = server.get("serverId", server.get("id"))
                self._declared[str(id)] = str(server.get("name"))
        return await forward()

    @on("mcp/connect", source="agent")
    async def note_connection(self, params: dict[str, Any], forward: Any) -> Any:
        result = await forward()
        if isinstance(result, dict) and "connectionId" in result:
            server = params.get("serverId", params.get("acpId"))
            self._connections[result["connectionId"]] = str(server)
        return result

    @on("mcp/disconnect", source="agent")
    async def forget_connection(self, params: dict[str, Any], forward: Any) -> Any:
        self._connections.pop(params.get("connectionId", ""), None)
        return await forward()

    @on("mcp/message", source="agent")
    async def filter(self, params: dict[str, Any], forward: Any) -> Any:
        if not self._applies_to(params):
            return await forward()
        match params.get("method"):
            case "tools/list":
                return self._filter_list(await forward())
            case "tools/call":
                return await self._call_tool(params, forward)
        return await forward()

    def _applies_to(self, params: dict[str, Any]) -> bool:
        if not self.servers:
            return True
        server = params.get("serverId") or self._connections.get(params.get("connectionId", ""))
        return self._declared.get(str(server)) in self.servers

    def _filter_list(self, answer: Any) -> Any:
        """Return the list without hidden tools; the stateless binding nests it in `result`."""
        result = answer.get("result", answer) if isinstance(answer, dict) else None
        if not isinstance(result, dict) or not isinstance(result.get("tools"), list):
            return answer
        result["tools"] = [
            self._renamed(one) for one in result["tools"] if self._allows(one["name"])
        ]
        return answer

    async def _call_tool(self, params: dict[str, Any], forward: Any) -> Any:
        inner = params.get("params") or {}
        original = self._server_name(str(inner.get("name")))
        if original is None:
            text = f"Unknown tool: {inner.get('name')}"
            if "requestId" in params:
                return {"error": {"code": _INVALID_PARAMS, "message": text}}
            raise RequestError(_INVALID_PARAMS, text)
        if original == inner.get("name"):
            return await forward()
        params["params"] = {**inner, "name": original}
        return await forward(params)

    def _allows(self, name: str) -> bool:
        return not _matches(name, self.deny) and (not self.allow or _matches(name, self.allow))

    def _renamed(self, one: dict[str, Any]) -> dict[str, Any]:
        name = one["name"]
        changed = {**one, "name": self.rename.get(name, f"{self.prefix}{name}")}
        if name in self.describe:
            changed["description"] = self.describe[name]
        return changed

    def _server_name(self, shown: str) -> str | None:
        """Return the server's name of a tool that the agent sees; `None` if there is none."""
        for name, other in self.rename.items():
            if other == shown:
                return name if self._allows(name) else None
        name = shown.removeprefix(self.prefix)
        hidden = not shown.startswith(self.prefix) or name in self.rename
        return None if hidden or not self._allows(name) else name


def _matches(name: str, patterns: Sequence[str]) -> bool:
    return any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns)
