"""`hide_tools`: keeps tools from the agent, or tool calls from the user's screen.

From the agent: a tool of an MCP server over ACP (provided by a proxy or the client) is removed from
the server's `tools/list` result, and calls to it are refused. Messages of servers that the agent
itself starts or connects to do not pass through the chain; see `mcp_servers` for these.

From the client: updates of a tool call are dropped, unless the agent requests permission for it.

Options:
    tools      globs for `server/tool`, or for the name of a tool
    kinds      kinds of tool calls (read, search, think, …); with `hide_from: client` only
    hide_from  agent (default) or client
"""

from __future__ import annotations

import fnmatch
from typing import Any, Literal

import attrs

from conductor.proxy import (
    AgentToolCall,
    Forward,
    PermissionQuestion,
    Proxy,
    RequestError,
    Session,
    on,
    on_permission,
    on_update,
    per_session,
)
from conductor.proxy.tool_names import tool_table
from proxies._permission_rules import Call

__all__ = ["HideTools"]

_INVALID_PARAMS = -32602


@attrs.define
class HideTools(Proxy):
    """Hide tools from the agent, or tool calls from the client."""

    tools: list[str] = attrs.field(factory=list)
    kinds: list[str] = attrs.field(factory=list)
    hide_from: Literal["agent", "client"] = "agent"
    _servers: dict[str, str] = attrs.field(factory=dict, init=False)
    """Names of MCP servers over ACP, by server id and by connection id."""

    shown = per_session(set[str])
    """Ids of calls that match but were shown, since permission was requested."""

    def __attrs_post_init__(self) -> None:
        if self.kinds and self.hide_from == "agent":
            raise ValueError("`kinds` are kinds of tool calls: add `hide_from: client`")
        if not (self.tools or self.kinds):
            raise ValueError("there is nothing to hide: give `tools`")

    # -- from the agent ----------------------------------------------------------------------------

    @on("session/new")
    @on("session/load")
    @on("session/resume")
    @on("session/fork")
    async def learn_names(self, params: dict[str, Any], forward: Forward) -> Any:
        for server in params.get("mcpServers") or ():
            if server.get("type") == "acp" and isinstance(server.get("name"), str):
                self._servers[_first(server, "serverId", "id")] = server["name"]
        return await forward()

    @on("mcp/connect", source="agent")
    async def connect(self, params: dict[str, Any], forward: Forward) -> Any:
        result = await forward()
        name = self._servers.get(_first(params, "serverId", "acpId"), "")
        self._servers[_first(result, "connectionId")] = name
        return result

    @on("mcp/disconnect", source="agent")
    async def disconnect(self, params: dict[str, Any], forward: Forward) -> Any:
        self._servers.pop(params.get("connectionId", ""), None)
        return await forward()

    @on("mcp/message", source="agent")
    async def message(self, params: dict[str, Any], forward: Forward) -> Any:
        server = self._servers.get(_first(params, "serverId", "connectionId"), "")
        method, inner = params.get("method"), params.get("params") or {}
        if self.hide_from == "agent" and method == "tools/call":
            name = str(inner.get("name"))
            if self._is_hidden_tool(f"{server}/{name}", name):
                return _refusal(f"Unknown tool: {name}", stateless="serverId" in params)
        if self.hide_from == "client" or method != "tools/list":
            return await forward()
        result = await forward()
        # The stateless binding wraps the server's response.
        listed = result.get("result", {}) if "serverId" in params else result
        if "tools" in listed:
            listed["tools"] = [
                tool
                for tool in listed["tools"]
                if not self._is_hidden_tool(f"{server}/{tool['name']}", tool["name"])
            ]
        return result

    # -- from the client ---------------------------------------------------------------------------

    @on_update("tool_call", "tool_call_update", "tool_call_content_chunk")
    async def update(self, session: Session, update: dict[str, Any], forward: Forward) -> None:
        call = session.tool_calls.get(str(update.get("toolCallId", "")))
        if call is None or not self._is_hidden_call(session, call):
            await forward()

    @on_permission
    async def permission(
        self, session: Session, asked: PermissionQuestion, forward: Forward
    ) -> Any:
        call = session.tool_calls.get(asked.tool_call.id) if asked.tool_call is not None else None
        if call is not None and self._is_hidden_call(session, call):
            self.shown[session.id].add(call.id)
            kind = "tool_call" if session.protocol_version == 1 else "tool_call_update"
            await self.client.update(session.id, {**call.members, "sessionUpdate": kind})
        return await forward()

    # ----------------------------------------------------------------------------------------------

    def _is_hidden_call(self, session: Session, known: AgentToolCall) -> bool:
        if self.hide_from == "agent" or known.id in self.shown[session.id]:
            return False
        agent = str(session.agent_info.get("name", ""))
        table = tool_table(agent)
        call = Call.of(known.members, cwd="", session="", agent=agent, table=table)
        return call.kind in self.kinds or call.tool.hints_at(self.tools)

    def _is_hidden_tool(self, *names: str) -> bool:
        return any(fnmatch.fnmatchcase(name, glob) for name in names for glob in self.tools)


def _first(holder: dict[str, Any], *keys: str) -> str:
    """Return the first of these members that is present; the bindings name them differently."""
    return next((str(holder[key]) for key in keys if key in holder), "")


def _refusal(text: str, *, stateless: bool) -> dict[str, Any]:
    if not stateless:
        raise RequestError(_INVALID_PARAMS, text)
    return {"error": {"code": _INVALID_PARAMS, "message": text}}
