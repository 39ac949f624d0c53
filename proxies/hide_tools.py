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

from conductor.error_codes import INVALID_PARAMS
from conductor.proxy import (
    AgentToolCall,
    Forward,
    PermissionQuestion,
    Proxy,
    RequestError,
    Session,
    on_mcp,
    on_permission,
    on_update,
    per_session,
)
from conductor.proxy.tool_names import tool_table
from proxies.shared.tool_calls.call import Call

__all__ = ["HideTools"]


@attrs.define
class HideTools(Proxy):
    """Hide tools from the agent, or tool calls from the client."""

    tools: list[str] = attrs.field(factory=list)
    kinds: list[str] = attrs.field(factory=list)
    hide_from: Literal["agent", "client"] = "agent"

    shown = per_session(set[str])
    """Ids of calls that match but were shown, since permission was requested."""

    def __attrs_post_init__(self) -> None:
        if self.kinds and self.hide_from == "agent":
            raise ValueError("`kinds` are kinds of tool calls: add `hide_from: client`")
        if not (self.tools or self.kinds):
            raise ValueError("there is nothing to hide: give `tools`")

    # -- from the agent ----------------------------------------------------------------------------

    @on_mcp("tools/list")
    async def list_tools(self, server: str, params: dict[str, Any], forward: Forward) -> Any:
        result = await forward()
        if self.hide_from == "agent" and "tools" in result:
            tools = result["tools"]
            result["tools"] = [each for each in tools if not self._hides(server, each["name"])]
        return result

    @on_mcp("tools/call")
    async def call_tool(self, server: str, params: dict[str, Any], forward: Forward) -> Any:
        if self.hide_from == "agent" and self._hides(server, name := str(params.get("name"))):
            raise RequestError(INVALID_PARAMS, f"Unknown tool: {name}")
        return await forward()

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
        agent, table = session.agent_name, tool_table(session.agent_name)
        call = Call.of(known.members, cwd="", session="", agent=agent, table=table)
        return call.kind in self.kinds or call.tool.hints_at(self.tools)

    def _hides(self, server: str, tool: str) -> bool:
        names = (f"{server}/{tool}", tool)
        return any(fnmatch.fnmatchcase(name, glob) for name in names for glob in self.tools)
