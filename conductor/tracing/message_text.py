"""One-line summaries of messages and log events, for people. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, Literal

from conductor.tracing.json_diff import short_json
from conductor.tracing.records import LogRecord, NotificationRecord, RequestRecord, ResponseRecord

__all__ = ["log_text", "message_text", "method_and_text", "method_text"]

_WITHOUT_DETAILS: Final = frozenset({"initialize"})
_MAX_NAMES: Final = 8
"""Names and content blocks that are shown."""


def message_text(
    kind: Literal["request", "notification", "response"],
    method: str,
    payload: Any,
    *,
    is_error: bool = False,
) -> str:
    """One-line summary of a message; empty if the method alone is sufficient.

    `payload` is the decoded JSON of `params`, `result` or `error`; `method` of a response is that
    of its request. The text may contain control characters of the peer.
    """
    if payload is None or (method in _WITHOUT_DETAILS and not is_error):
        return ""
    if not isinstance(payload, Mapping) or kind == "response":
        return short_json(payload)
    match method, payload:
        case "session/prompt", {"prompt": list(blocks)}:
            return " ".join(map(_block, blocks[:_MAX_NAMES]))
        case "session/update", {"update": {"sessionUpdate": str(change)} as update}:
            others = {name: each for name, each in update.items() if name != "sessionUpdate"}
            return f"{change} {_update(others)}".rstrip()
        case "session/request_permission", {"options": list(options)}:
            names = ", ".join(str(_member(each, "optionId")) for each in options[:_MAX_NAMES])
            return f"{short_json(_title(payload))} ({names})"
        case "tools/call", {"name": str(name)}:
            return f"tool {name} {short_json(payload.get('arguments', {}))}"
        case "mcp/message", {"params": {"name": name, **rest}}:
            return f"tool {name} {short_json(rest.get('arguments', {}))}"
    return short_json({name: each for name, each in payload.items() if name != "sessionId"})


def method_and_text(
    message: RequestRecord | NotificationRecord | ResponseRecord,
) -> tuple[str, str]:
    """The method, or the kind of a session update, and the short text of a message; its `head` if
    the payload is not in the trace."""
    match message:
        case ResponseRecord(is_error=True, payload={"code": code, "message": str(text)}):
            method, text = message.method, f"{code} {text}"
        case ResponseRecord():
            method, is_error = message.method, message.is_error
            text = message_text("response", method, message.payload, is_error=is_error)
        case RequestRecord():
            method = method_text(message)
            text = message_text("request", message.method, message.params)
        case NotificationRecord():
            method = message.method
            text = message_text("notification", method, message.params)
            if method == "session/update" and text:
                method, _, text = text.partition(" ")
            else:
                method = message.update_kind or method
    return method, text or message.head or ""


def method_text(message: RequestRecord | NotificationRecord) -> str:
    """The method; `initialize (MCP)` for that of an MCP server."""
    is_mcp = message.protocol == "mcp" and message.method == "initialize"
    return "initialize (MCP)" if is_mcp else message.method


def log_text(log: LogRecord) -> str:
    """Level, event and fields of a log event."""
    fields = "".join(f" {name}={_field(value)}" for name, value in log.fields.items())
    return f"{log.level}: {log.event}{fields}"


def _field(value: Any) -> str:
    return value if isinstance(value, str) and " " not in value else short_json(value)


def _update(update: Mapping[str, Any]) -> str:
    match update:
        case {"content": {"type": str()} as content}:
            return _block(content)
        case {"toolCallId": id}:
            told = [update.get(name) for name in ("title", "kind", "status")]
            return " ".join([str(id), *(str(each) for each in told if each is not None)])
        case {"availableCommands": list(commands)}:
            names = [f"/{_member(each, 'name')}" for each in commands[:_MAX_NAMES]]
            return " ".join(names) + (" …" if len(commands) > _MAX_NAMES else "")
    return short_json(update)


def _block(block: Any) -> str:
    match block:
        case {"type": "text", "text": str(text)}:
            return short_json(text)
        case {"type": str(type), "uri": str(uri)}:
            return f"[{type} {uri}]"
        case {"type": str(type)}:
            return f"[{type}]"
    return short_json(block)


def _title(payload: Mapping[str, Any]) -> Any:
    """The title of the tool call that permission is requested for."""
    call = payload.get("toolCall") or _member(payload.get("subject"), "toolCall")
    return _member(call, "title")


def _member(value: Any, name: str) -> Any:
    return value.get(name) if isinstance(value, Mapping) else None
