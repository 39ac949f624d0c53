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
from typing import Any

import attrs

from conductor.error_codes import INVALID_PARAMS
from conductor.proxy import Forward, Proxy, RequestError, on_mcp

__all__ = ["McpTools"]


@attrs.define
class McpTools(Proxy):
    """Allow, deny, rename and describe the tools of MCP servers.

    Options:
        allow     globs for the server's tool names (`read_*`); without it, all
        deny      globs for tools that are hidden and refused, also if `allow` has them
        rename    new names, by the server's tool names
        prefix    put before names that are not renamed
        describe  new descriptions, by the server's tool names
        servers   names of the MCP servers that this is for; without it, all
    """

    allow: tuple[str, ...] = ()
    deny: tuple[str, ...] = ()
    rename: dict[str, str] = attrs.field(factory=dict)
    prefix: str = ""
    describe: dict[str, str] = attrs.field(factory=dict)
    servers: tuple[str, ...] = ()

    def option_warnings(self) -> Sequence[tuple[str, str]]:
        return [
            (
                option,
                f"`{name}` is compared with the tool's name alone: write `{tool}`, with"
                f" `servers: [{server}]` if only this server is meant",
            )
            for option in ("allow", "deny", "rename", "describe")
            for name in getattr(self, option)
            for server, slash, tool in [name.partition("/")]
            if slash
        ]

    @on_mcp("tools/list")
    async def list_tools(self, server: str, params: dict[str, Any], forward: Forward) -> Any:
        result = await forward()
        if self._applies_to(server) and isinstance(result.get("tools"), list):
            listed = [each for each in result["tools"] if self._allows(each["name"])]
            result["tools"] = [self._renamed(each) for each in listed]
        return result

    @on_mcp("tools/call")
    async def call_tool(self, server: str, params: dict[str, Any], forward: Forward) -> Any:
        if self._applies_to(server):
            name = self._server_name(str(params.get("name")))
            if name is None:
                raise RequestError(INVALID_PARAMS, f"Unknown tool: {params.get('name')}")
            params["name"] = name
        return await forward()

    def _applies_to(self, server: str) -> bool:
        return not self.servers or server in self.servers

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
