"""MCP servers of a proxy's tools at run time: declared per session, with their connections.

Imported only for a proxy with tools: the import takes 3 ms, and `tool_handlers` is imported by
every plugin.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeAlias

import attrs
import msgspec

from conductor.errors import RequestError
from conductor.jsonrpc.messages import INVALID_PARAMS, METHOD_NOT_FOUND, encode_error
from conductor.proxy.conversion import decode_params, decode_result
from conductor.proxy.mcp_server_host import HostedMcpServer
from conductor.proxy.peers import ResponseCallback
from conductor.proxy.tool_methods import ToolCall, ToolHost, server_of_tools, tool_names

__all__ = ["ToolServers", "on_mcp_message", "on_session_end", "on_session_setup", "tool_servers_of"]

Next: TypeAlias = Callable[[bytes], Awaitable[bytes | None]]


@attrs.define(eq=False, repr=False)
class _DeclaredServer:
    """An MCP server that was declared in one session."""

    id: str
    name: str
    make: Callable[[_ServerConnection], Any]
    session: str | None = None
    connections: list[_ServerConnection] = attrs.field(factory=list)


@attrs.define(eq=False, repr=False)
class _ServerConnection:
    """One MCP connection to a declared server; in the stateless binding the only one (`id` is
    `None`)."""

    plugin: ToolHost
    declared: _DeclaredServer
    id: str | None
    session: str | None = None
    hosted: HostedMcpServer = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self.hosted = HostedMcpServer(lambda: self.declared.make(self), self)

    def call(self) -> ToolCall:
        return ToolCall(self.declared.session or self.session, self.declared.id, self.id)

    # HostedServerClient: messages of the server

    def request(
        self, method: str, params: dict[str, Any] | None, answered: ResponseCallback
    ) -> Callable[[], None]:
        if self.id is None:
            text = "The stateless binding has no requests to the MCP client"
            answered(None, encode_error(METHOD_NOT_FOUND, text, method))
            return lambda: None
        carried = _mcp_message_params(method, params, connectionId=self.id)
        return self.plugin.agent.ask("mcp/message", carried, answered)

    async def notify(
        self, method: str, params: dict[str, Any] | None, about: int | str | None
    ) -> None:
        if self.id is not None:
            carried = _mcp_message_params(method, params, connectionId=self.id)
        elif about is not None:
            carried = _mcp_message_params(
                method, params, serverId=self.declared.id, requestId=about
            )
        else:
            return
        self.plugin.agent.send("mcp/message", carried)


@attrs.define(eq=False, repr=False)
class ToolServers:
    """The declared servers of one plugin, by server id, and their connections."""

    plugin: ToolHost
    servers: dict[str, _DeclaredServer] = attrs.field(factory=dict)
    connections: dict[str, _ServerConnection] = attrs.field(factory=dict)

    def declare(self) -> list[_DeclaredServer]:
        """Return new servers, with new ids, for one session."""
        plugin, cls = self.plugin, type(self.plugin)
        made: list[_DeclaredServer] = []
        if tool_names(cls):
            build = functools.partial(_tools, plugin)
            made.append(_DeclaredServer(_new_id("mcp-server"), cls.__name__, build))
        for index, server in enumerate(plugin.mcp_servers()):
            make = functools.partial(_own_server, plugin, index)
            made.append(_DeclaredServer(_new_id("mcp-server"), server.name, make))
        self.servers |= {declared.id: declared for declared in made}
        return made

    def release(self, declared: Sequence[_DeclaredServer]) -> None:
        for one in declared:
            self.servers.pop(one.id, None)
            for connection in list(one.connections):
                self.close(connection)

    def connect(
        self, declared: _DeclaredServer, id: str | None, session: str | None
    ) -> _ServerConnection:
        connection = _ServerConnection(self.plugin, declared, id, session)
        declared.connections.append(connection)
        self.connections[id if id is not None else declared.id] = connection
        self.plugin.start_soon(connection.hosted.run)
        return connection

    def close(self, connection: _ServerConnection) -> None:
        connection.hosted.close()
        connection.declared.connections.remove(connection)
        key = connection.id if connection.id is not None else connection.declared.id
        self.connections.pop(key, None)


def tool_servers_of(plugin: ToolHost) -> ToolServers:
    try:
        servers: ToolServers = plugin._acp_toolbox
    except AttributeError:
        servers = plugin._acp_toolbox = ToolServers(plugin)
    return servers


async def on_session_setup(
    tool_servers: ToolServers, method: str, raw: bytes, call_next: Next
) -> bytes | None:
    params = decode_params(raw, dict)
    if not tool_servers.plugin.has_tools_for(params):
        return await call_next(raw)
    declared = tool_servers.declare()
    entries = [{"type": "acp", "name": one.name, "serverId": one.id} for one in declared]
    loaded = params.get("sessionId") if method != "session/fork" else None
    for one in declared:
        one.session = loaded
    try:
        result = await call_next(_with_servers(raw, entries))
    except BaseException:
        tool_servers.release(declared)
        raise
    answer = decode_result(result, dict)
    session = answer.get("sessionId") if isinstance(answer, dict) else None
    for one in declared:
        one.session = session or loaded
    return result


async def on_session_end(
    tool_servers: ToolServers, method: str, raw: bytes, call_next: Next
) -> bytes | None:
    result = await call_next(raw)
    session = decode_params(raw, dict).get("sessionId")
    tool_servers.release([one for one in tool_servers.servers.values() if one.session == session])
    return result


async def on_mcp_message(
    tool_servers: ToolServers, method: str, raw: bytes, call_next: Next
) -> bytes | None:
    """Handle an MCP message for a server of this proxy; forward any other one."""
    params = decode_params(raw, dict)
    server = params.get("serverId", params.get("acpId"))
    declared = tool_servers.servers.get(server) if isinstance(server, str) else None
    connection = tool_servers.connections.get(params.get("connectionId") or "")
    session = (params.get("_meta") or {}).get("sessionId")
    if method == "mcp/connect" and declared is not None:
        connection = tool_servers.connect(declared, _new_id("mcp-connection"), session)
        return msgspec.json.encode({"connectionId": connection.id})
    if method == "mcp/disconnect" and connection is not None:
        tool_servers.close(connection)
        return b"{}"
    if method == "mcp/message" and (connection is not None or declared is not None):
        if connection is None:
            assert declared is not None
            connection = tool_servers.connections.get(declared.id) or tool_servers.connect(
                declared, None, session
            )
        connection.session = connection.session or session
        _deliver(connection, params)
        return None
    return await call_next(raw)


def _deliver(connection: _ServerConnection, params: dict[str, Any]) -> None:
    method, inner, id = params.get("method"), params.get("params"), params.get("requestId")
    stateless = connection.id is None
    if not isinstance(method, str) or (stateless and not isinstance(id, str)):
        raise RequestError(INVALID_PARAMS, "An MCP message needs a method and an id")
    if not connection.plugin.answering:
        connection.hosted.notify(method, inner)
        return
    cancel: Callable[[], None] | None = None

    def cancelled() -> None:
        if cancel is not None:
            cancel()

    answer = connection.plugin.defer(cancelled)

    def answered(result: bytes | None, error: bytes | None) -> None:
        if stateless and result is not None:
            answer(b'{"result":%b}' % result, None)
        elif stateless and error is not None and b"-32800" not in error:
            answer(b'{"error":%b}' % error, None)
        else:
            answer(result, error)

    cancel = connection.hosted.request(method, inner, answered, id if stateless else None)


def _tools(plugin: ToolHost, connection: _ServerConnection) -> Any:
    return server_of_tools(plugin, connection.call)


def _own_server(plugin: ToolHost, index: int, connection: _ServerConnection) -> Any:
    return plugin.mcp_servers()[index]


def _with_servers(raw: bytes, entries: list[dict[str, Any]]) -> bytes:
    members = msgspec.json.decode(raw, type=dict[str, msgspec.Raw])
    servers = msgspec.json.decode(members.get("mcpServers", b"[]"), type=list[msgspec.Raw] | None)
    added = [msgspec.Raw(msgspec.json.encode(entry)) for entry in entries]
    members["mcpServers"] = msgspec.Raw(msgspec.json.encode([*(servers or ()), *added]))
    return msgspec.json.encode(members)


def _mcp_message_params(method: str, params: Any, **head: Any) -> dict[str, Any]:
    return {**head, "method": method, **({"params": params} if params is not None else {})}


def _new_id(kind: str) -> str:
    return f"{kind}:{os.urandom(8).hex()}"
