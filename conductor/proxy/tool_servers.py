"""MCP servers of a proxy: its tools, and what `mcp_servers` returns, declared per session.

A proxy with tools declares an MCP server over ACP in every session that `has_tools_for` selects,
and answers the MCP messages that the agent, or the MCP bridge before it, sends to that server, in
any of the three bindings and with one server object per connection (RFD mcp-over-acp). Calls run
outside the lanes, so a tool may send requests to the client and the agent while it runs.

Of other servers an author returns the declaration, with the members that the protocol names, and
leaves out what is empty:

    {"name": "docs", "command": "uvx", "args": ["docs-mcp"], "env": {"TOKEN": "…"}}
    {"name": "api", "url": "https://mcp.example.org/mcp", "headers": {"Authorization": "…"}}
"""

from __future__ import annotations

import inspect
import os
import shutil
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Final

import attrs
import msgspec

from conductor.acp import MCP_METHODS, SESSION_END_METHODS, SESSION_SETUP_METHODS
from conductor.errors import LocalProtocolError, RequestError
from conductor.json_values import decode_value
from conductor.jsonrpc.json_object import list_items, member_at, with_member
from conductor.jsonrpc.messages import INVALID_PARAMS, METHOD_NOT_FOUND, encode_error
from conductor.log import get_logger
from conductor.proxy.annotations import DeclarationError
from conductor.proxy.conversion import encode
from conductor.proxy.mcp_server_host import HostedMcpServer
from conductor.proxy.middleware import Body, Layer, Next, Sender
from conductor.proxy.peers import ResponseCallback, without_none
from conductor.proxy.sessions import Session, chain_info, session_of
from conductor.proxy.tools import tool_methods
from conductor.schema.base import Object

__all__ = ["ToolServers", "tool_layers"]

_REOPENING: Final = ("session/load", "session/resume")
_EXAMPLE: Final = (
    'write {"name": "docs", "command": "uvx", "args": ["docs-mcp"]} or '
    '{"name": "docs", "url": "https://…"}'
)
log: Final = get_logger()


def tool_layers(cls: type) -> dict[tuple[str, Sender], Layer]:
    """Return the layers that tools and servers of a plugin class need, by method and sender: of
    session set-up and end, and of `mcp/*` from the agent. Raises `DeclarationError`."""
    own_servers = getattr(cls, "mcp_servers", None)
    offers = getattr(own_servers, "__qualname__", "") != "Proxy.mcp_servers"
    methods = tool_methods(cls)
    if not methods and (own_servers is None or not offers):
        return {}
    if own_servers is None:
        where = f"{cls.__name__}.{methods[0].attribute}"
        raise DeclarationError(f"{where}: only a Proxy can offer tools")
    if offers:
        _check_mcp_servers(cls, own_servers)
    return {
        **{(m, "client"): Layer(partial(_set_up, m)) for m in sorted(SESSION_SETUP_METHODS)},
        **{(m, "client"): Layer(_end) for m in sorted(SESSION_END_METHODS)},
        **{(m, "agent"): Layer(partial(_mcp_message, m)) for m in sorted(MCP_METHODS)},
    }


def _check_mcp_servers(cls: type, function: Any) -> None:
    """Raise `DeclarationError` if `mcp_servers` takes something else than the session."""
    if not inspect.isfunction(function):
        raise DeclarationError(
            f"{cls.__name__}.mcp_servers is not an option: write `def mcp_servers(self, session)`"
        )
    taken = list(inspect.signature(function).parameters)[1:]
    if len(taken) != 1:
        raise DeclarationError(
            f"{cls.__name__}.mcp_servers takes ({', '.join(taken)}); write "
            "`def mcp_servers(self, session)`, with or without `async`"
        )


@attrs.define(eq=False, repr=False)
class _SessionServer:
    """An MCP server that was declared in one session."""

    id: str
    name: str
    session: Session
    server: Any = None
    """An object of the MCP SDK; `None`: the tools of the proxy, with a server per connection."""


@attrs.define(eq=False, repr=False)
class _ServerConnection:
    """One MCP connection to a declared server; in the stateless binding the only one (`id` is
    `None`)."""

    plugin: Any
    declared: _SessionServer
    id: str | None
    hosted: HostedMcpServer = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self.hosted = HostedMcpServer(self.make, self)

    def make(self) -> Any:
        if self.declared.server is not None:
            return self.declared.server
        from conductor.proxy.tool_server import tool_server

        return tool_server(self.plugin, self.find_session)

    def find_session(self) -> Session:
        session = self.declared.session
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
        carried = without_none(connectionId=self.id, method=method, params=params)
        cancel: Callable[[], None] = self.plugin.agent.ask("mcp/message", carried, answered)
        return cancel

    async def notify(
        self, method: str, params: dict[str, Any] | None, about: int | str | None
    ) -> None:
        if self.id is not None:
            head: dict[str, Any] = {"connectionId": self.id}
        elif about is not None:
            head = {"serverId": self.declared.id, "requestId": about}
        else:
            return
        self.plugin.agent.send("mcp/message", without_none(**head, method=method, params=params))


@attrs.define(eq=False, repr=False)
class ToolServers:
    """The declared servers of one plugin, by server id, and their connections."""

    plugin: Any
    servers: dict[str, _SessionServer] = attrs.field(factory=dict)
    connections: dict[str, _ServerConnection] = attrs.field(factory=dict)

    async def declare(
        self, session: Session, params: dict[str, Any]
    ) -> tuple[list[_SessionServer], list[dict[str, Any]]]:
        """Return new servers with new ids for one session, and declarations of other servers."""
        plugin, cls = self.plugin, type(self.plugin)
        made: list[_SessionServer] = []
        others: list[dict[str, Any]] = []
        if tool_methods(cls) and plugin.has_tools_for(params):
            made.append(_SessionServer(_new_id("mcp-server"), cls.__name__, session))
        where = f"{cls.__name__}.mcp_servers()"
        servers = plugin.mcp_servers(session)
        for server in (await servers if inspect.isawaitable(servers) else servers) or ():
            if isinstance(server, Mapping | Object):
                others.append(_declaration(where, server, session.protocol_version))
                continue
            name = getattr(server, "name", None)
            if not isinstance(name, str):
                raise LocalProtocolError(
                    f"{where} returned a {type(server).__name__}: return declarations, or `Server` "
                    "or `MCPServer` objects of the MCP SDK"
                )
            made.append(_SessionServer(_new_id("mcp-server"), name, session, server))
        self.servers |= {declared.id: declared for declared in made}
        return made, others

    def release(self, declared: Sequence[_SessionServer]) -> None:
        for one in declared:
            self.servers.pop(one.id, None)
            for connection in [c for c in self.connections.values() if c.declared is one]:
                self.close(connection)

    def connect(self, declared: _SessionServer, id: str | None) -> _ServerConnection:
        connection = _ServerConnection(self.plugin, declared, id)
        self.connections[id if id is not None else declared.id] = connection
        self.plugin.start_soon(connection.hosted.run)
        return connection

    def close(self, connection: _ServerConnection) -> None:
        connection.hosted.close()
        key = connection.id if connection.id is not None else connection.declared.id
        self.connections.pop(key, None)


def _tool_servers(plugin: Any) -> ToolServers:
    """The `ToolServers` of a plugin, created on first use."""
    try:
        servers: ToolServers = plugin._acp_toolbox
    except AttributeError:
        servers = plugin._acp_toolbox = ToolServers(plugin)
    return servers


async def _set_up(method: str, plugin: Any, body: Body, call_next: Next) -> Body:
    """Add the servers of the proxy to a session set-up request."""
    params, tool_servers = _params(method, body), _tool_servers(plugin)
    id = params.get("sessionId") if method in _REOPENING else None
    session = Session(
        id if isinstance(id, str) else "", chain=chain_info(plugin), client=plugin.client
    )
    session.set_up(method, params)
    declared, others = await tool_servers.declare(session, params)
    entries = [{"type": "acp", "name": one.name, "serverId": one.id} for one in declared]
    entries += _without_taken_names(others, session, type(plugin).__name__)
    try:
        answered = await call_next(_with_servers(body.raw, entries) if entries else body)
    except BaseException:
        tool_servers.release(declared)
        raise
    if isinstance(answered.value, dict):
        opened = answered.value.get("sessionId")
        session.id = opened if isinstance(opened, str) else session.id
        session.answered(answered.value)
    return answered


async def _end(plugin: Any, body: Body, call_next: Next) -> Body:
    answered = await call_next(body)
    servers = _tool_servers(plugin)
    ended = [one for one in servers.servers.values() if one.session.id == body.session_id]
    servers.release(ended)
    return answered


async def _mcp_message(method: str, plugin: Any, body: Body, call_next: Next) -> Body:
    """Handle an MCP message for a server of this proxy; forward any other one."""
    params, tool_servers = _params(method, body), _tool_servers(plugin)
    meta = params.get("_meta")
    declared = tool_servers.servers.get(_text(params.get("serverId", params.get("acpId"))))
    connection = tool_servers.connections.get(_text(params.get("connectionId")))
    called = connection.declared if connection is not None else declared
    if called is not None and not called.session.id and isinstance(meta, dict):
        called.session.id = _text(meta.get("sessionId"))  # the set-up is not answered
    if method == "mcp/connect" and declared is not None:
        connection = tool_servers.connect(declared, _new_id("mcp-connection"))
        return Body.of({"connectionId": connection.id})
    if method == "mcp/disconnect" and connection is not None:
        tool_servers.close(connection)
        return Body(b"{}")
    if method == "mcp/message" and (connection is not None or declared is not None):
        if connection is None:
            assert declared is not None
            connection = tool_servers.connections.get(declared.id) or tool_servers.connect(
                declared, None
            )
        _deliver(connection, params)
        return Body(None)
    return await call_next(body)


def _params(method: str, body: Body) -> dict[str, Any]:
    """Params as a dict. Raises `RequestError`: they are no failure of the plugin."""
    try:
        params = body.decode()
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


def _with_servers(raw: bytes | None, entries: list[dict[str, Any]]) -> Body:
    servers = member_at(raw or b"{}", "mcpServers")
    declared = [] if servers in (None, b"null") else list_items(servers)
    added = [msgspec.json.encode(entry) for entry in entries]
    items = b"[%b]" % b",".join([*declared, *added])
    return Body(with_member(raw or b"{}", ["mcpServers"], items))


def _new_id(kind: str) -> str:
    return f"{kind}:{os.urandom(8).hex()}"


def _declaration(where: str, server: Any, version: int) -> dict[str, Any]:
    """Return a declaration as version 1 or 2 of the protocol has it.

    A `command` without a slash is looked up in PATH, since agents require an absolute path and may
    have another PATH. Raises `LocalProtocolError`, which begins with `where`.
    """
    given: dict[str, Any] = (
        dict(server)
        if isinstance(server, Mapping)
        else decode_value(encode(server) or b"{}", type=dict[str, Any])
    )
    name, command, url = given.get("name"), given.get("command"), given.get("url")
    if not isinstance(name, str) or not name:
        raise LocalProtocolError(f"{where} returned an MCP server without a name: {_EXAMPLE}")
    type = given.pop("type", "stdio" if command is not None else "http")
    if type == "acp" and isinstance(given.get("serverId"), str):
        return {"type": "acp", **given}
    if type == "stdio" and isinstance(command, str) and url is None:
        stdio = {
            **given,
            "command": command if "/" in command else shutil.which(command) or command,
            "args": list(given.get("args") or ()),
            "env": _pairs(given.get("env")),
        }
        return stdio if version == 1 else {"type": "stdio", **stdio}
    if type in ("http", "sse") and isinstance(url, str) and command is None:
        return {"type": type, **given, "headers": _pairs(given.get("headers"))}
    raise LocalProtocolError(
        f"{where}: the MCP server {name!r} has neither one `command` (a text, with the other words "
        f"in `args`) nor one `url`: {_EXAMPLE}"
    )


def _pairs(values: Any) -> list[Any]:
    """Variables or headers as the protocol has them, from a dict or already so."""
    if isinstance(values, Mapping):
        return [{"name": name, "value": value} for name, value in values.items()]
    return list(values or ())
