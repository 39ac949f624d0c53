"""Requests of the agent to MCP servers over ACP, for `@on_mcp`.

`mcp/message` carries MCP messages in three bindings: two with connections (`mcp/connect`), of which
one calls the server id `acpId`; and one without. In the last, the result contains the response of
the server as `result` or `error`. A handler gets the MCP request and its result, the same in all,
and the name of the server, which messages name by the id of a declaration or connection.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from functools import partial
from typing import Any

from conductor.acp import SESSION_END_METHODS, SESSION_SETUP_METHODS
from conductor.errors import RequestError
from conductor.proxy.middleware import Body, Layer, Next, location_of
from conductor.proxy.sessions import ChainInfo, chain_info, session_of

__all__ = ["mcp_layer", "naming_layers"]


_Function = Callable[..., Awaitable[Any]]


def mcp_layer(function: _Function, methods: Iterable[str]) -> Layer:
    """Return the layer of `mcp/message` that calls a handler for these MCP methods."""
    return Layer(partial(_message, function, frozenset(methods)), location_of(function))


def naming_layers() -> Iterator[tuple[str, Layer]]:
    """Yield the layers that record the names of servers, with their methods."""
    for method in SESSION_SETUP_METHODS:
        yield method, Layer(_declare)
    for method in SESSION_END_METHODS:
        yield method, Layer(_forget)
    yield "mcp/connect", Layer(_connect)
    yield "mcp/disconnect", Layer(_disconnect)


async def _declare(plugin: Any, body: Body, call_next: Next) -> Body:
    names, declared = chain_info(plugin).mcp_servers, _names(body.value.get("mcpServers"))
    new = declared.keys() - names
    names |= declared  # an agent may connect before it answers
    try:
        return await call_next(body)
    except RequestError:
        _drop(chain_info(plugin), new)
        raise


async def _forget(plugin: Any, body: Body, call_next: Next) -> Body:
    id = body.session_id
    declared = _names(session_of(plugin, id).mcp_servers) if id is not None else ()
    answered = await call_next(body)
    _drop(chain_info(plugin), declared)
    return answered


async def _connect(plugin: Any, body: Body, call_next: Next) -> Body:
    answered = await call_next(body)
    result, params = answered.value, body.value
    if isinstance(result, dict) and isinstance(result.get("connectionId"), str):
        server = str(params.get("serverId", params.get("acpId")))
        chain_info(plugin).mcp_connections[result["connectionId"]] = server
    return answered


async def _disconnect(plugin: Any, body: Body, call_next: Next) -> Body:
    chain_info(plugin).mcp_connections.pop(str(body.value.get("connectionId")), None)
    return await call_next(body)


def _names(declared: Any) -> dict[str, str]:
    """The names of the servers over ACP among declarations, by id; one binding calls it `id`."""
    return {
        str(server.get("serverId", server.get("id"))): str(server.get("name"))
        for server in (declared if isinstance(declared, list | tuple) else ())
        if isinstance(server, dict) and server.get("type") == "acp"
    }


def _drop(info: ChainInfo, servers: Iterable[str]) -> None:
    """Drop the names of servers, and the connections to them."""
    dropped = set(servers)
    for id in dropped:
        info.mcp_servers.pop(id, None)
    for connection in [key for key, id in info.mcp_connections.items() if id in dropped]:
        del info.mcp_connections[connection]


def _server_name(info: ChainInfo, params: Mapping[str, Any]) -> str:
    """The name of the server that an `mcp/message` is for; empty if it is not known."""
    connection = params.get("connectionId")
    server = info.mcp_connections.get(str(connection)) if connection else params.get("serverId")
    return info.mcp_servers.get(str(server), "")


async def _message(
    function: _Function, methods: frozenset[str], plugin: Any, body: Body, call_next: Next
) -> Body:
    """Call the handler for a request of one of the methods.

    In the binding without connections, an error that the handler raises is the response of the
    server; an error of the binding itself, such as an unknown server id, stays one.
    """
    method = body.value.get("method") if isinstance(body.value, dict) else None
    if not isinstance(method, str) or method not in methods:
        return await call_next(body)
    message = body.decode()
    params = message.get("params")
    given = params if isinstance(params, dict) else {}
    has_outcome = "connectionId" not in message
    answered = Body(None)
    of_binding: RequestError | None = None

    async def forward(changed: Mapping[str, Any] | None = None) -> Any:
        nonlocal answered, of_binding
        sent = given if changed is None else changed
        try:
            answered = await call_next(body.edited({**message, "params": sent}) if sent else body)
        except RequestError as exc:
            of_binding = exc
            raise
        answer = answered.decode()
        if not has_outcome:
            return answer
        error = answer.get("error")
        if "result" not in answer and isinstance(error, dict):
            raise RequestError(error.get("code", 0), error.get("message", ""), error.get("data"))
        return answer.get("result")

    try:
        server = _server_name(chain_info(plugin), message)
        result = await function(plugin, server, given, forward)
    except RequestError as exc:
        if not has_outcome or exc is of_binding:
            raise
        error = {"code": exc.code, "message": exc.message}
        return Body.of({"error": error if exc.data is None else {**error, "data": exc.data}})
    if not has_outcome:
        return answered.edited(result)
    others = {name: value for name, value in (answered.value or {}).items() if name != "error"}
    return answered.edited({**others, "result": result})
