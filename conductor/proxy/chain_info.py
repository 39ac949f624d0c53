"""Facts about the chain of a plugin: protocol version, client, agent, capabilities.

Read from the `initialize` request and its response, the same in protocol versions 1 and 2. Beside
it: slash commands, names of MCP servers and open texts of all sessions of the plugin.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import attrs

from conductor.acp.sessions import ToolCallMemory
from conductor.acp.turns import Turns
from conductor.proxy.mcp_server_names import McpServerNames
from conductor.proxy.slash_commands import SlashCommands
from conductor.proxy.text_streams import TextStreams

__all__ = ["ChainInfo", "chain_info"]


@attrs.define(eq=False)
class ChainInfo:
    """Facts about the chain, from `initialize`."""

    protocol_version: int = 1
    client_info: Mapping[str, Any] = attrs.field(factory=dict)
    agent_info: Mapping[str, Any] = attrs.field(factory=dict)
    client_capabilities: Mapping[str, Any] = attrs.field(factory=dict)
    agent_capabilities: Mapping[str, Any] = attrs.field(factory=dict)
    misfits: set[str] = attrs.field(factory=set)
    """The handlers, as `file:line`, that have got a notification that does not fit their type."""
    commands: SlashCommands = attrs.field(factory=SlashCommands)
    mcp_names: McpServerNames = attrs.field(factory=McpServerNames)
    turns: Turns[Any] = attrs.field(factory=lambda: Turns(2))
    """The turns of all sessions. In version 1, where only subagents report states, a prompt is
    answered with the stop reason that ends it."""
    open_texts: dict[tuple[Any, str | None], TextStreams] = attrs.field(factory=dict)
    """The texts that pass a filter, by the author's function and the session."""
    tool_calls: ToolCallMemory = attrs.field(factory=ToolCallMemory)

    def asked(self, params: Any) -> None:
        """Record the params of `initialize`, of version 1 or 2."""
        params = _object(params)
        self.client_info = _object(params.get("clientInfo", params.get("info")))
        self.client_capabilities = _object(
            params.get("clientCapabilities", params.get("capabilities"))
        )

    def answered(self, result: Any) -> None:
        """Record the result of `initialize`, of version 1 or 2."""
        result = _object(result)
        version = result.get("protocolVersion")
        self.protocol_version = version if isinstance(version, int) else 1
        self.agent_info = _object(result.get("agentInfo", result.get("info")))
        self.agent_capabilities = _object(
            result.get("agentCapabilities", result.get("capabilities"))
        )


def chain_info(plugin: Any) -> ChainInfo:
    """The `ChainInfo` of a plugin, created on first use."""
    try:
        info: ChainInfo = plugin._acp_chain
    except AttributeError:
        info = plugin._acp_chain = ChainInfo()
    return info


def _object(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}
