"""Attributes of spans by the semantic conventions of OpenTelemetry: GenAI, MCP, RPC, code. Pure.

Names beginning with `acp_conductor` are the conductor's own. Texts of a user, a model or a tool are
only in the results of `message_content` and `tool_content`, which are used on request.
"""

from __future__ import annotations

from typing import Any, Final, TypeAlias

import msgspec

from conductor.tracing.records import HandlerRecord, RequestRecord

__all__ = [
    "Attributes",
    "code_attributes",
    "message_content",
    "permission_outcome",
    "request_attributes",
    "tool_attributes",
    "tool_content",
    "usage_attributes",
]

Attributes: TypeAlias = dict[str, str | int | float | bool]
_USAGE: Final = {
    "inputTokens": "gen_ai.usage.input_tokens",
    "outputTokens": "gen_ai.usage.output_tokens",
    "cachedReadTokens": "gen_ai.usage.cache_read.input_tokens",
    "cachedWriteTokens": "gen_ai.usage.cache_creation.input_tokens",
    "thoughtTokens": "gen_ai.usage.reasoning.output_tokens",
}
_MAX_CONTENT: Final = 64 * 1024
"""Characters of an attribute with content."""


def request_attributes(record: RequestRecord) -> Attributes:
    """Attributes of every request."""
    found: Attributes = {
        "rpc.system.name": "jsonrpc",
        "rpc.method": record.method,
        "acp_conductor.chain": record.chain,
        "acp_conductor.hop": record.hop,
        "acp_conductor.sender": record.sender,
        "acp_conductor.component": record.receiver,
        "acp_conductor.record": record.n,
        "acp_conductor.request.size": record.size,
    }
    if record.session is not None:
        found["gen_ai.conversation.id"] = record.session
    if record.protocol == "mcp":
        found["mcp.method.name"] = record.method
        if record.mcp_server is not None:
            found["acp_conductor.mcp_server"] = record.mcp_server
        name = record.params.get("name") if isinstance(record.params, dict) else None
        if record.method == "tools/call" and isinstance(name, str):
            found |= {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": name}
        elif record.method == "prompts/get" and isinstance(name, str):
            found["gen_ai.prompt.name"] = name
    return found


def code_attributes(record: HandlerRecord) -> Attributes:
    """The place of a handler, and its times."""
    path, colon, line = record.handler.rpartition(":")
    place: Attributes = {"code.file.path": record.handler}
    if colon and line.isdigit():
        place = {"code.file.path": path, "code.line.number": int(line)}
    return place | {
        "acp_conductor.handler.waited": record.waited,
        "acp_conductor.handler.took": record.took,
        "acp_conductor.handler.outcome": record.outcome,
    }


def usage_attributes(usage: Any) -> Attributes:
    """Tokens of a turn, as its result has them."""
    if not isinstance(usage, dict):
        return {}
    counts = {name: usage.get(key) for key, name in _USAGE.items()}
    return {name: count for name, count in counts.items() if isinstance(count, int)}


def tool_attributes(update: dict[str, Any]) -> Attributes:
    """A tool call. Before its schema had `name`, agents wrote it into `_meta`; some still do."""
    kind = update.get("kind")
    kind = kind if isinstance(kind, str) else "other"
    found: Attributes = {"gen_ai.operation.name": "execute_tool", "acp_conductor.tool.kind": kind}
    if isinstance(id := update.get("toolCallId"), str):
        found["gen_ai.tool.call.id"] = id
    told = {"toolName": update.get("name")}
    name = _tool_name(told) or _tool_name(update.get("_meta")) or kind
    return found | {"gen_ai.tool.name": name, "gen_ai.tool.type": "function"}


def permission_outcome(params: Any, result: Any) -> str:
    """The kind of the chosen option (`allow_once`, …), "cancelled", or "unknown"."""
    match result:
        case {"outcome": {"outcome": "cancelled"}}:
            return "cancelled"
        case {"outcome": {"outcome": "selected", "optionId": chosen}}:
            options = params.get("options") if isinstance(params, dict) else None
            for each in options if isinstance(options, list) else []:
                if isinstance(each, dict) and each.get("optionId") == chosen:
                    return str(each.get("kind", "unknown"))
    return "unknown"


def message_content(role: str, texts: list[str], finish_reason: str | None = None) -> str:
    """The JSON of `gen_ai.input.messages` and `gen_ai.output.messages`."""
    message: dict[str, Any] = {
        "role": role,
        "parts": [{"type": "text", "content": "".join(texts)[:_MAX_CONTENT]}],
    }
    if finish_reason is not None:
        message["finish_reason"] = finish_reason
    return msgspec.json.encode([message]).decode()


def tool_content(update: dict[str, Any]) -> Attributes:
    """Arguments and result of a tool call, as far as an update has them."""
    names = {
        "rawInput": "gen_ai.tool.call.arguments",
        "rawOutput": "gen_ai.tool.call.result",
        "title": "acp_conductor.tool.title",
    }
    found: Attributes = {}
    for key, name in names.items():
        value = update.get(key)
        if value is not None:
            text = value if isinstance(value, str) else msgspec.json.encode(value).decode()
            found[name] = text[:_MAX_CONTENT]
    return found


def _tool_name(meta: Any) -> str | None:
    """The name in the `_meta` of known agents: `{"claudeCode": {"toolName": "Bash"}}`."""
    if not isinstance(meta, dict):
        return None
    for each in (meta, *meta.values()):
        name = each.get("toolName") if isinstance(each, dict) else None
        if isinstance(name, str):
            return name
    return None
