"""Replaces declarations of MCP servers that the agent does not support by ones that it does.

A server over ACP becomes a stdio server (the shim); so does an HTTP or SSE server, for an agent
that does not take this type.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Literal

import attrs
import trio

from bridges.acp_provider import DeclaredServer
from bridges.declarations import AgentMcpSupport, stdio_entry
from bridges.mcp_connection import McpConnection
from bridges.server_names import ServerNames
from bridges.shared_servers import AgentSession
from bridges.shim_listener import ShimListener
from conductor.bridge_api import INTERNAL_ERROR, INVALID_PARAMS
from conductor.log import get_logger
from conductor.proxy import RequestError

__all__ = ["Declaration", "DeclarationRewriter", "RewrittenSetup"]

_SHIM: Final = str(Path(__file__).with_name("shim.py"))

log = get_logger(component="mcp-bridge")


@attrs.define(eq=False)
class Declaration:
    """A replaced declaration: one server of one session, as given to the agent."""

    server: DeclaredServer
    name: str
    token: str
    session: AgentSession
    remote: bool = False
    """Whether it replaces an HTTP or SSE server."""
    mcp_connections: set[McpConnection] = attrs.field(factory=set)
    start: trio.Event = attrs.field(factory=trio.Event)
    """Set when the server has answered the agent's MCP client, or is known not to."""
    timed: int = 0
    """Connections that wait for the time limit of the start."""
    is_slow: bool = False
    """Whether the start has taken long."""
    problem: str | None = None
    """Why the server did not start."""
    is_set_up: bool = False
    """Whether the session is set up, so that the user can get a notice."""


@attrs.define(eq=False)
class RewrittenSetup:
    """The replaced declarations of one session set-up request."""

    session: AgentSession
    own_names: Mapping[str, str] = attrs.field(factory=dict)
    """Names that the session's servers had in an earlier set-up, by declared name."""
    declared: list[Declaration] = attrs.field(factory=list)


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
    names: ServerNames = attrs.field(factory=ServerNames, init=False)
    _servers: dict[str, DeclaredServer] = attrs.field(factory=dict, init=False)

    def __attrs_post_init__(self) -> None:
        self.shim_listener = ShimListener(abstract=self.sandboxed)

    def delivery(self) -> Literal["native", "stdio", "none"]:
        """Form in which the agent gets servers that are declared over ACP."""
        agent = self.agent
        if agent.acp:
            return "native"
        return "stdio" if agent.stdio and self.mode != "off" else "none"

    def replace(
        self, entry: dict[str, Any], taken: set[str], into: RewrittenSetup
    ) -> dict[str, Any] | None:
        """Return the replacement of a declaration; `None` to leave it unchanged.

        Raises `RequestError` if the agent cannot get the server at all.
        """
        if self._is_unsupported_remote(entry):
            server = DeclaredServer(f"url:{self.new_id()}", entry["name"], entry)
            return self._over_stdio(server, taken - {entry["name"]}, into, remote=True)
        if entry.get("type") != "acp":
            return None
        delivery = self.delivery()
        if delivery == "none":
            why = (
                "mcp_bridge is off, and the agent takes no MCP servers over ACP"
                if self.mode == "off"
                else "the agent takes MCP servers neither over ACP nor over stdio"
            )
            raise RequestError(INVALID_PARAMS, f"MCP server {entry.get('name')!r}: {why}")
        id = entry.get("serverId", entry.get("id"))
        if not isinstance(id, str) or not isinstance(entry.get("name"), str):
            raise RequestError(
                INVALID_PARAMS, "An MCP server of type acp needs a name and a serverId", entry
            )
        known = self._servers.get(id)
        server = DeclaredServer(
            id, entry["name"], entry, binding=known.binding if known is not None else None
        )
        self._servers[id] = server
        if self.offline:
            log.warning(
                "MCP server of a proxy not available to the agent: its sandbox has no network",
                server=server.name,
            )
        return self._over_stdio(server, taken, into)

    def release(self, declarations: Sequence[Declaration]) -> None:
        for declaration in declarations:
            self.shim_listener.revoke(declaration.token)
            if self._servers.get(declaration.server.id) is declaration.server:
                del self._servers[declaration.server.id]
            for mcp_connection in list(declaration.mcp_connections):
                mcp_connection.close()
            if self.agent.server_scope != "one_per_name":  # that agent keeps the name in use
                self.names.free([declaration.name])

    def _is_unsupported_remote(self, entry: dict[str, Any]) -> bool:
        """Whether it is an HTTP or SSE server, of a type that the agent does not support."""
        takes = {"http": self.agent.http, "sse": self.agent.sse}.get(str(entry.get("type")), True)
        given = isinstance(entry.get("name"), str) and isinstance(entry.get("url"), str)
        return not takes and given and self.agent.stdio and self.mode != "off"

    def _over_stdio(
        self, server: DeclaredServer, taken: set[str], into: RewrittenSetup, *, remote: bool = False
    ) -> dict[str, Any]:
        try:
            address = self.shim_listener.open()
        except OSError as exc:
            text = f"MCP server {server.name!r}: cannot create the bridge's socket: {exc}"
            raise RequestError(INTERNAL_ERROR, f"{text}; see TMPDIR") from exc
        name = self.names.choose(server.name, taken, into.own_names.get(server.name))
        declaration = Declaration(server, name, "", into.session, remote)
        into.declared.append(declaration)
        declaration.token = self.shim_listener.issue(declaration)
        # A sandbox shows the interpreter, but not a virtual environment that links to it.
        python = sys.executable if not self.sandboxed else os.path.realpath(sys.executable)
        argv = [python, "-I", "-S", _SHIM]
        env = {"ACP_MCP_BRIDGE": address, "ACP_MCP_TOKEN": declaration.token}
        return stdio_entry(declaration.name, argv, env, self.agent.acp_version)
