"""MCP server declarations in session set-up requests, and the agent's support for them. Pure.

Both protocol versions list servers in `mcpServers`; they differ in the place of the agent's MCP
capabilities, and in whether a stdio server has a `type`. Unchanged members keep their bytes.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any, Final, TypeAlias

import attrs
import msgspec
from msgspec import Raw

from bridges.bindings import members_of
from bridges.server_scope import ServerScope, server_scope
from conductor.json_values import decode_loosely, decode_value

__all__ = [
    "AgentMcpSupport",
    "RewriteFunction",
    "agent_mcp_support",
    "rewrite",
    "session_id_in",
    "stdio_entry",
    "taken_names",
    "without_servers",
]

RewriteFunction: TypeAlias = Callable[[dict[str, Any], set[str]], "dict[str, Any] | None"]
"""Called with a declaration and the names in use; returns a replacement, or `None`."""


@attrs.frozen
class AgentMcpSupport:
    """MCP support of an agent, from its `initialize` result."""

    acp_version: int = 1
    stdio: bool = True
    http: bool = False
    sse: bool = False
    acp: bool = False
    closes_sessions: bool = False
    """Whether it takes `session/close`."""
    server_scope: ServerScope | None = None
    """How the agent keeps MCP servers, see `ServerScope`; `None` if unknown."""


def agent_mcp_support(result: bytes) -> AgentMcpSupport:
    """Read the MCP support from an `initialize` result; the default if it cannot be decoded."""
    try:
        answer = _loads(Raw(result))
    except ValueError:
        return AgentMcpSupport()
    if not isinstance(answer, dict):
        return AgentMcpSupport()
    version = 2 if answer.get("protocolVersion") == 2 else 1
    info = _get(answer, "info" if version == 2 else "agentInfo")
    scope = server_scope(info)
    if version == 2:
        mcp = _get(_get(_get(answer, "capabilities"), "session"), "mcp")
        has = {kind: mcp.get(kind) not in (None, False) for kind in ("stdio", "http", "acp")}
        closes = "close" in _get(_get(answer, "capabilities"), "session")
        return AgentMcpSupport(2, has["stdio"], has["http"], False, has["acp"], closes, scope)
    capabilities = _get(answer, "agentCapabilities")
    mcp = _get(capabilities, "mcpCapabilities")
    return AgentMcpSupport(
        1,
        True,  # every version 1 agent must take stdio servers
        mcp.get("http") is True,
        mcp.get("sse") is True,
        mcp.get("acp") is True,
        _get(capabilities, "sessionCapabilities").get("close") not in (None, False),
        scope,
    )


def rewrite(params: bytes, change: RewriteFunction) -> bytes:
    """Return the params with MCP servers replaced by `change`; `params` itself if none was.

    `_meta` and unknown members of a replaced declaration are kept.
    """
    members = members_of(params)
    entries = _entries(members)
    names = taken_names(entries)
    changed = False
    for index, raw in enumerate(entries):
        entry = _loads(raw)
        other = change(entry, names) if isinstance(entry, dict) else None
        if other is not None:
            changed = True
            names.add(str(other.get("name")))
            kept = {name: v for name, v in members_of(raw).items() if name not in _REPLACED_MEMBERS}
            entries[index] = Raw(_object({n: Raw(_dumps(v)) for n, v in other.items()} | kept))
    if not changed:
        return params
    members["mcpServers"] = Raw(b"[" + b",".join(bytes(entry) for entry in entries) + b"]")
    return _object(members)


def without_servers(params: bytes, left_out: Sequence[dict[str, Any]]) -> bytes:
    """Return the params without these declarations."""
    members = members_of(params)
    kept = [bytes(raw) for raw in _entries(members) if _loads(raw) not in left_out]
    members["mcpServers"] = Raw(b"[" + b",".join(kept) + b"]")
    return _object(members)


def session_id_in(payload: bytes | None) -> str | None:
    """Return the `sessionId` of params or a result; `None` if absent or nested too deeply."""
    try:
        raw = members_of(payload).get("sessionId") if payload is not None else None
    except RecursionError:
        return None
    value = _loads(raw) if raw is not None else None
    return value if isinstance(value, str) else None


def stdio_entry(
    name: str, argv: Sequence[str], env: dict[str, str], version: int
) -> dict[str, Any]:
    kind = {"type": "stdio"} if version == 2 else {}
    return {
        **kind,
        "name": name,
        "command": argv[0],
        "args": list(argv[1:]),
        "env": [{"name": key, "value": value} for key, value in env.items()],
    }


def taken_names(entries: Sequence[Raw]) -> set[str]:
    """Return the names of the declared servers that are not over ACP."""
    found = set()
    for raw in entries:
        entry = _loads(raw)
        if isinstance(entry, dict) and entry.get("type") not in ("acp",):
            found.add(str(entry.get("name")))
    return found


_REPLACED_MEMBERS: Final = frozenset(
    {"type", "name", "serverId", "id", "url", "headers", "command", "args", "env"}
)


def _object(members: dict[str, Raw]) -> bytes:
    return b"{" + b",".join(b"%b:%b" % (_dumps(n), v) for n, v in members.items()) + b"}"


def _entries(members: dict[str, Raw]) -> list[Raw]:
    raw = members.get("mcpServers")
    if raw is None:
        return []
    try:
        return decode_value(raw, type=list[Raw])
    except msgspec.MsgspecError:
        value = _loads(raw)
        return [Raw(_dumps(entry)) for entry in value] if isinstance(value, list) else []


def _get(value: Any, name: str) -> dict[str, Any]:
    inside = value.get(name) if isinstance(value, dict) else None
    return inside if isinstance(inside, dict) else {}


def _loads(raw: Raw) -> Any:
    try:
        return decode_value(raw)
    except msgspec.DecodeError:
        return decode_loosely(raw)


def _dumps(value: Any) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()
