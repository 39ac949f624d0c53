"""MCP servers of a proxy at run time: declared per session, with their connections.

Imported only for a proxy with MCP servers: the import takes 3 ms, and `tool_handlers` is imported
by every plugin.
"""

from __future__ import annotations

import inspect
import os
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any, Final, TypeAlias

import attrs
import msgspec

from conductor.errors import LocalProtocolError, RequestError
from conductor.jsonrpc.json_object import list_items, member_at, with_member
from conductor.jsonrpc.messages import INVALID_PARAMS, METHOD_NOT_FOUND, encode_error
from conductor.log import get_logger
from conductor.proxy.chain_info import chain_info
from conductor.proxy.conversion import decode_params, decode_result
from conductor.proxy.mcp_declarations import declaration, is_declaration
from conductor.proxy.mcp_methods import ToolHost, mcp_methods
from conductor.proxy.mcp_server_host import HostedMcpServer
from conductor.proxy.peers import ResponseCallback
from conductor.proxy.sessions import Session, session_of

__all__ = ["ToolServers", "on_mcp_message", "on_session_end", "on_session_setup", "tool_servers_of"]

Next: TypeAlias = Callable[[bytes], Awaitable[bytes | None]]
_REOPENING: Final = ("session/load", "session/resume")
log: Final = get_logger()


@attrs.define(eq=False, repr=False)
class _SessionServer:
    """An MCP server that was declared in one session."""

    id: str
    name: str
    make: Callable[[_ServerConnection], Any]
    """Makes the server for a connection."""
    session: Session
    connections: list[_ServerConnection] = attrs.field(factory=list)


@attrs.define(eq=False, repr=False)
class _ServerConnection:
    """One MCP connection to a declared server; in the stateless binding the only one (`id` is
    `None`)."""

    plugin: ToolHost
    declared: _SessionServer
    id: str | None
    session_id: str | None = None
    """The id in the agent's messages, for the time before the session is set up."""
    hosted: HostedMcpServer = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self.hosted = HostedMcpServer(lambda: self.declared.make(self), self)

    def find_session(self) -> Session:
        session = self.declared.session
        if not session.id:
            session.id = self.session_id or ""
        if session.id and hasattr(type(self.plugin), "_acp_session_objects"):
            return session_of(self.plugin, session.id)
        return session

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
    servers: dict[str, _SessionServer] = attrs.field(factory=dict)
    connections: dict[str, _ServerConnection] = attrs.field(factory=dict)

    async def declare(
        self, session: Session, params: dict[str, Any]
    ) -> tuple[list[_SessionServer], list[dict[str, Any]]]:
        """Return new servers with new ids for one session, and declarations of other servers."""
        plugin, cls = self.plugin, type(self.plugin)
        made: list[_SessionServer] = []
        others: list[dict[str, Any]] = []
        has_tools = plugin.has_tools_for(params)
        if has_tools and mcp_methods(cls):
            made.append(self._declared(cls.__name__, partial(_method_server, plugin), session))
        if has_session_parameter(cls):
            where = f"{cls.__name__}.mcp_servers()"
            servers = plugin.mcp_servers(session)
            servers = await servers if inspect.isawaitable(servers) else servers
            for server in servers or ():
                if is_declaration(server):
                    others.append(declaration(where, server, session.protocol_version))
                else:
                    make = partial(_same_server, server)
                    made.append(self._declared(_sdk_name(where, server), make, session))
        elif has_tools:
            where = f"{cls.__name__}.mcp_servers()"
            for index, server in enumerate(plugin.mcp_servers()):
                make = partial(_own_server, plugin, index)
                made.append(self._declared(_sdk_name(where, server), make, session))
        self.servers |= {declared.id: declared for declared in made}
        return made, others

    def _declared(
        self, name: str, make: Callable[[_ServerConnection], Any], session: Session
    ) -> _SessionServer:
        return _SessionServer(_new_id("mcp-server"), name, make, session)

    def release(self, declared: Sequence[_SessionServer]) -> None:
        for one in declared:
            self.servers.pop(one.id, None)
            for connection in list(one.connections):
                self.close(connection)

    def connect(
        self, declared: _SessionServer, id: str | None, session: str | None
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
    """Add the servers of the proxy to a session set-up request."""
    params = _read(method, raw)
    plugin = tool_servers.plugin
    id = params.get("sessionId") if method in _REOPENING else None
    session = Session(
        id if isinstance(id, str) else "", chain=chain_info(plugin), client=plugin.client
    )
    session.set_up(method, params)
    declared, others = await tool_servers.declare(session, params)
    entries = [{"type": "acp", "name": one.name, "serverId": one.id} for one in declared]
    entries += _without_taken_names(others, session, type(plugin).__name__)
    try:
        result = await call_next(_with_servers(raw, entries) if entries else raw)
    except BaseException:
        tool_servers.release(declared)
        raise
    answer = decode_result(result, dict)
    if isinstance(answer, dict):
        opened = answer.get("sessionId")
        session.id = opened if isinstance(opened, str) else session.id
        session.answered(answer)
    return result


async def on_session_end(
    tool_servers: ToolServers, method: str, raw: bytes, call_next: Next
) -> bytes | None:
    result = await call_next(raw)
    id = _read(method, raw).get("sessionId")
    tool_servers.release([one for one in tool_servers.servers.values() if one.session.id == id])
    return result


async def on_mcp_message(
    tool_servers: ToolServers, method: str, raw: bytes, call_next: Next
) -> bytes | None:
    """Handle an MCP message for a server of this proxy; forward any other one."""
    params = _read(method, raw)
    meta = params.get("_meta")
    declared = tool_servers.servers.get(_text(params.get("serverId", params.get("acpId"))))
    connection = tool_servers.connections.get(_text(params.get("connectionId")))
    session = _text(meta.get("sessionId")) or None if isinstance(meta, dict) else None
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
        connection.session_id = connection.session_id or session
        _deliver(connection, params)
        return None
    return await call_next(raw)


def _read(method: str, raw: bytes) -> dict[str, Any]:
    """Params as a dict. Raises `RequestError`: they are no failure of the plugin."""
    try:
        params = decode_params(raw, dict)
    except ValueError as exc:
        raise RequestError(INVALID_PARAMS, f"Invalid params for {method}: {exc}") from None
    if not isinstance(params, dict):
        raise RequestError(INVALID_PARAMS, f"Invalid params for {method}: expected an object")
    return params


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""


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


def has_session_parameter(cls: type) -> bool:
    """Whether `mcp_servers` of a class takes the session, and so may return declarations."""
    return len(inspect.signature(cls.mcp_servers).parameters) > 1  # type: ignore[attr-defined]


def _method_server(plugin: ToolHost, connection: _ServerConnection) -> Any:
    from conductor.proxy.mcp_method_server import Caller, server_of_methods

    caller = Caller(connection.declared.id, connection.id, connection.find_session)
    return server_of_methods(plugin, mcp_methods(type(plugin)), caller)


def _own_server(plugin: ToolHost, index: int, connection: _ServerConnection) -> Any:
    return plugin.mcp_servers()[index]


def _same_server(server: Any, connection: _ServerConnection) -> Any:
    return server


def _sdk_name(where: str, server: Any) -> str:
    """The name of a server object of the MCP SDK."""
    name = getattr(server, "name", None)
    if isinstance(name, str) and not is_declaration(server):
        return name
    raise LocalProtocolError(
        f"{where} returned a {type(server).__name__}: return `Server` or `MCPServer` objects of "
        "the MCP SDK; write `def mcp_servers(self, session)` to return declarations"
    )


def _without_taken_names(
    servers: Sequence[dict[str, Any]], session: Session, plugin: str
) -> list[dict[str, Any]]:
    """Leave out servers with a name that the session has already: an agent might use either."""
    taken = {each.get("name") for each in session.mcp_servers}
    kept: list[dict[str, Any]] = []
    for server in servers:
        if server["name"] in taken:
            log.warning(
                "MCP server left out: the session has one of this name",
                plugin=plugin,
                name=server["name"],
            )
        else:
            taken.add(server["name"])
            kept.append(server)
    return kept


def _with_servers(raw: bytes, entries: list[dict[str, Any]]) -> bytes:
    servers = member_at(raw, "mcpServers")
    declared = [] if servers in (None, b"null") else list_items(servers)
    added = [msgspec.json.encode(entry) for entry in entries]
    return with_member(raw, ["mcpServers"], b"[%b]" % b",".join([*declared, *added]))


def _mcp_message_params(method: str, params: Any, **head: Any) -> dict[str, Any]:
    return {**head, "method": method, **({"params": params} if params is not None else {})}


def _new_id(kind: str) -> str:
    return f"{kind}:{os.urandom(8).hex()}"
