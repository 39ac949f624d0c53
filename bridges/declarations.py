"""MCP server declarations in session set-up requests: those that the agent does not support are
replaced by ones that it does.

A server over ACP becomes a stdio server (the shim); so does an HTTP or SSE server, for an agent
that does not take this type. Both protocol versions list servers in `mcpServers`; they differ in
the place of the agent's MCP capabilities, and in whether a stdio server has a `type`. Unchanged
members keep their bytes.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import Any, Final, Literal

import attrs
import msgspec
import trio

from bridges.mcp_connection import DeclaredServer, McpConnection
from bridges.shim_listener import ShimListener
from conductor.bridge_api import (
    INTERNAL_ERROR,
    INVALID_PARAMS,
    join_members,
    list_items,
    member_at,
    object_members,
)
from conductor.json_values import decode_loosely, decode_value
from conductor.log import get_logger
from conductor.proxy import RequestError

__all__ = [
    "AgentMcpSupport",
    "Declaration",
    "DeclarationRewriter",
    "agent_mcp_support",
    "declared_servers",
    "session_id_in",
    "without_servers",
]

_SHIM: Final = str(Path(__file__).with_name("shim.py"))

log = get_logger(component="mcp-bridge")


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


def agent_mcp_support(result: bytes) -> AgentMcpSupport:
    """Read the MCP support from an `initialize` result; the default if it cannot be decoded."""
    try:
        answer = _decoded(result)
    except ValueError:
        return AgentMcpSupport()
    if _get(answer, "protocolVersion") == 2:
        session = _get(answer, "capabilities", "session")
        mcp = _get(session, "mcp")
        has = {kind: _get(mcp, kind) not in (None, False) for kind in ("stdio", "http", "acp")}
        closes_sessions = isinstance(session, dict) and "close" in session
        return AgentMcpSupport(2, closes_sessions=closes_sessions, **has)
    mcp = _get(answer, "agentCapabilities", "mcpCapabilities")
    closes = _get(answer, "agentCapabilities", "sessionCapabilities", "close")
    return AgentMcpSupport(
        http=_get(mcp, "http") is True,
        sse=_get(mcp, "sse") is True,
        acp=_get(mcp, "acp") is True,
        closes_sessions=closes not in (None, False),
    )


@attrs.define(eq=False)
class Declaration:
    """A declaration that is bridged: one server of one session, as given to the agent."""

    server: DeclaredServer
    name: str
    token: str
    """Of the shims that may connect; empty for an agent that takes MCP over ACP."""
    is_remote: bool = False
    """Whether it replaces an HTTP or SSE server."""
    mcp_connections: set[McpConnection] = attrs.field(factory=set)
    start: trio.Event = attrs.field(factory=trio.Event)
    """Set when the server has answered the agent's MCP client, or is known not to."""
    was_asked: bool = False
    """Whether the agent's MCP client has connected."""
    is_slow: bool = False
    """Whether the start has taken long."""
    problem: str | None = None
    """Why the server did not start."""
    is_set_up: bool = False
    """Whether the session is set up, so that the user can get a notice."""


@attrs.define(eq=False)
class DeclarationRewriter:
    """Rewrites declarations for one agent."""

    mode: Literal["auto", "stdio", "off"]
    new_id: Callable[[], str]
    agent: AgentMcpSupport = attrs.field(factory=AgentMcpSupport, init=False)
    sandboxed: bool = False
    """Whether the agent runs in a sandbox."""
    offline: bool = False
    """Whether that sandbox has no network, so that the agent cannot connect to the bridge."""
    shim_listener: ShimListener = attrs.field(init=False)
    servers: dict[str, Declaration] = attrs.field(factory=dict, init=False)
    """The newest declaration of each server over ACP, by server id."""

    def __attrs_post_init__(self) -> None:
        self.shim_listener = ShimListener(abstract=self.sandboxed)

    def delivery(self) -> Literal["native", "stdio", "none"]:
        """Form in which the agent gets servers that are declared over ACP."""
        agent = self.agent
        if agent.acp:
            return "native"
        return "stdio" if agent.stdio and self.mode != "off" else "none"

    def rewrite(self, params: bytes, declared: list[Declaration]) -> bytes:
        """Return the params with servers replaced that the agent does not take; `params` itself if
        there is none. Append these to `declared`, and the servers over ACP that the agent takes.

        `_meta` and unknown members of a replaced declaration are kept. Raises `RequestError` if the
        agent cannot get a server at all.
        """
        entries = declared_servers(params)
        names = {str(_get(entry, "name")) for entry, _ in entries if _get(entry, "type") != "acp"}
        rewritten, is_changed = [], False
        for entry, raw in entries:
            other = self._replaced(entry, names, declared) if isinstance(entry, dict) else None
            if other is not None:
                names.add(other["name"])
                members = object_members(raw).items()
                kept = {name: value for name, value in members if name not in _REPLACED_MEMBERS}
                raw = join_members({n: _encoded(value) for n, value in other.items()} | kept)
                is_changed = True
            rewritten.append(raw)
        return _with_servers(params, rewritten) if is_changed else params

    def release(self, declarations: Sequence[Declaration]) -> None:
        for declaration in declarations:
            self.shim_listener.revoke(declaration.token)
            if self.servers.get(declaration.server.id) is declaration:
                del self.servers[declaration.server.id]
            for mcp_connection in list(declaration.mcp_connections):
                mcp_connection.close()

    def _replaced(
        self, entry: dict[str, Any], names: Collection[str], declared: list[Declaration]
    ) -> dict[str, Any] | None:
        name, type = entry.get("name"), entry.get("type")
        if type in ("http", "sse"):
            takes = self.agent.http if type == "http" else self.agent.sse
            if not isinstance(name, str) or not isinstance(entry.get("url"), str):
                return None
            if takes or not self.agent.stdio or self.mode == "off":
                return None
            server = DeclaredServer(f"url:{self.new_id()}", name, entry)
            return self._over_stdio(server, {*names} - {name}, declared, is_remote=True)
        if type != "acp":
            return None
        if self.delivery() == "none":
            why = (
                "mcp_bridge is off, and the agent takes no MCP servers over ACP"
                if self.mode == "off"
                else "the agent takes MCP servers neither over ACP nor over stdio"
            )
            raise RequestError(INVALID_PARAMS, f"MCP server {name!r}: {why}")
        id = entry.get("serverId", entry.get("id"))
        if not isinstance(id, str) or not isinstance(name, str):
            if self.agent.acp:
                return None
            raise RequestError(
                INVALID_PARAMS, "An MCP server of type acp needs a name and a serverId", entry
            )
        server = DeclaredServer(id, name, entry)
        if known := self.servers.get(id):
            server.binding, server.revision = known.server.binding, known.server.revision
        if self.agent.acp:
            self.servers[id] = Declaration(server, name, "")
            declared.append(self.servers[id])
            return None
        if self.offline:
            log.warning(
                "MCP server of a proxy not available to the agent: its sandbox has no network",
                server=server.name,
            )
        entry = self._over_stdio(server, names, declared)
        self.servers[id] = declared[-1]
        return entry

    def _over_stdio(
        self,
        server: DeclaredServer,
        taken: Collection[str],
        declared: list[Declaration],
        *,
        is_remote: bool = False,
    ) -> dict[str, Any]:
        try:
            address = self.shim_listener.open()
        except OSError as exc:
            text = f"MCP server {server.name!r}: cannot create the bridge's socket: {exc}"
            raise RequestError(INTERNAL_ERROR, f"{text}; see TMPDIR") from exc
        declaration = Declaration(server, _free_name(server.name, taken), "", is_remote)
        declared.append(declaration)
        declaration.token = self.shim_listener.issue(declaration)
        # A sandbox shows the interpreter, but not a virtual environment that links to it.
        python = sys.executable if not self.sandboxed else os.path.realpath(sys.executable)
        env = {"ACP_MCP_BRIDGE": address, "ACP_MCP_TOKEN": declaration.token}
        return {
            **({"type": "stdio"} if self.agent.acp_version == 2 else {}),
            "name": declaration.name,
            "command": python,
            "args": ["-I", "-S", _SHIM],
            "env": [{"name": key, "value": value} for key, value in env.items()],
        }


def declared_servers(params: bytes) -> list[tuple[Any, bytes]]:
    """The declarations in the params of a session set-up, each decoded and as raw JSON."""
    raw = member_at(params, "mcpServers")
    if raw is None or not raw.startswith(b"["):
        return []
    return [(_decoded(item), item) for item in list_items(raw)]


def without_servers(params: bytes, left_out: Sequence[dict[str, Any]]) -> bytes:
    """Return the params without these declarations."""
    kept = [raw for entry, raw in declared_servers(params) if entry not in left_out]
    return _with_servers(params, kept)


def session_id_in(payload: bytes | None) -> str | None:
    """Return the `sessionId` of params or a result; `None` if absent."""
    raw = member_at(payload, "sessionId") if payload is not None else None
    value = _decoded(raw) if raw is not None else None
    return value if isinstance(value, str) else None


_REPLACED_MEMBERS: Final = frozenset(
    {"type", "name", "serverId", "id", "url", "headers", "command", "args", "env"}
)


def _with_servers(params: bytes, entries: Sequence[bytes]) -> bytes:
    servers = b"[" + b",".join(entries) + b"]"
    return join_members({**object_members(params), "mcpServers": servers})


def _free_name(name: str, taken: Collection[str]) -> str:
    """`tools`, else `tools-2`, `tools-3`, which users and models recognise."""
    chosen, number = name, 2
    while chosen in taken:
        chosen, number = f"{name}-{number}", number + 1
    return chosen


def _get(value: Any, *path: str) -> Any:
    for name in path:
        value = value.get(name) if isinstance(value, dict) else None
    return value


def _decoded(raw: bytes) -> Any:
    try:
        return decode_value(raw)
    except msgspec.DecodeError:
        return decode_loosely(raw)


def _encoded(value: Any) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()
