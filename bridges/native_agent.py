"""Agents that take MCP servers over ACP themselves: their `mcp/*` messages are forwarded.

Only if the agent and a server understand different bindings, the bridge terminates the agent's
connection as a consumer, and connects to the server as for a shim.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import attrs
import msgspec

from bridges.acp_provider import AcpProvider, BridgeHost
from bridges.bindings import (
    Binding,
    CarrierParams,
    alternatives,
    candidates,
    message_params,
    wrap_outcome,
)
from bridges.declarations import Declaration
from bridges.mcp_connection import Cancel, ConnectionMode, McpConnection
from bridges.revisions import Handshake
from conductor.bridge_api import (
    INTERNAL_ERROR,
    INVALID_REQUEST,
    METHOD_NOT_FOUND,
    REQUEST_CANCELLED,
    InFlightRequest,
    Payload,
    ResponseCallback,
    encode_error,
    member_at,
)
from conductor.proxy import RequestError

__all__ = ["NativeAgent"]


@attrs.define(eq=False)
class NativeAgent:
    """The connections of a native agent that the bridge translates."""

    host: BridgeHost
    declared: Mapping[str, Declaration]
    """The declarations of the agent's sessions, by server id."""
    _connections: dict[str, McpConnection] = attrs.field(factory=dict, init=False)
    """By connection id; in the stateless binding by server id."""

    async def connect(self, carrier: CarrierParams, forward: Any) -> Any:
        declaration = self.declared.get(carrier.server or "")
        if declaration is None:
            return await forward()
        server = declaration.server
        own: Binding = "acpId" if isinstance(carrier.acpId, str) else "serverId"
        if server.binding in (None, own) and own in candidates(server.declaration):
            try:
                result = await forward()
            except RequestError as exc:
                others = [binding for binding in candidates(server.declaration) if binding != own]
                if server.binding == own or not alternatives(own, exc.code, others):
                    raise
            else:
                server.binding = own
                return result
        most = self.host.limits.max_mcp_connections
        if len(declaration.mcp_connections) >= most:
            problem = f"More than {most} connections to one server (max_mcp_connections)"
            raise RequestError(INVALID_REQUEST, problem)

        def cancelled() -> None:
            answer(None, encode_error(REQUEST_CANCELLED, "Request cancelled"))
            mcp_connection.close()

        answer = self.host.defer(cancelled)
        connection = f"acp-conductor:{self.host.new_request_id()}"
        mcp_connection = self._open(declaration, connection, answer)
        return None

    async def message(self, carrier: CarrierParams, forward: Any) -> Any:
        if isinstance(carrier.connectionId, str):
            mcp_connection = self._connections.get(carrier.connectionId)
            if mcp_connection is None:
                return await forward()
            if self.host.answering:
                self._ask(mcp_connection, carrier)
            else:
                mcp_connection.notification(str(carrier.method), carrier.inner)
            return None
        declaration = self.declared.get(carrier.server or "")
        if declaration is None or not self.host.answering:
            return await forward()
        server = declaration.server
        if server.binding == "stateless":
            return await forward()
        if server.binding is None:
            try:
                result = await forward()
            except RequestError as exc:
                if exc.code == REQUEST_CANCELLED:
                    raise
            else:
                server.binding = "stateless"
                return result
        mcp_connection = self._connections.get(server.id) or self._open(declaration)
        self._ask(mcp_connection, carrier)
        return None

    async def disconnect(self, carrier: CarrierParams, forward: Any) -> Any:
        mcp_connection = self._connections.get(str(carrier.connectionId))
        if mcp_connection is None:
            return await forward()
        mcp_connection.close()
        return {}

    def _open(
        self,
        declaration: Declaration,
        connection: str | None = None,
        answer: ResponseCallback = lambda result, error: None,
    ) -> McpConnection:
        """Connect to a server; `answer` gets the connection id, or the error."""
        key = connection or declaration.server.id

        def begin(mcp_connection: McpConnection) -> ConnectionMode:
            answer(msgspec.json.encode({"connectionId": connection}), None)
            return Handshake(mcp_connection)

        def ended(error: bytes) -> None:
            self._connections.pop(key, None)
            declaration.mcp_connections.discard(mcp_connection)
            answer(None, error)

        consumer = _AgentConsumer(self.host, declaration.server.id, connection, ended)
        refused = ended if connection is not None else None
        mcp_connection = McpConnection(consumer, begin, self.host.start_soon, refused)
        self._connections[key] = mcp_connection
        declaration.mcp_connections.add(mcp_connection)
        AcpProvider(declaration.server, mcp_connection, self.host).open()
        return mcp_connection

    def _ask(self, mcp_connection: McpConnection, carrier: CarrierParams) -> None:
        def cancelled() -> None:
            call.cancel()
            answer(None, encode_error(REQUEST_CANCELLED, "Request cancelled"))
            call.answered = True

        answer = self.host.defer(cancelled)
        id = carrier.requestId if isinstance(carrier.requestId, str) else None
        method = str(carrier.method)
        call = InFlightRequest(method, _AgentResponder(answer, id is not None), id)
        if id is not None and isinstance(mcp_connection.consumer, _AgentConsumer):
            mcp_connection.consumer.note(call, carrier.inner)
        mcp_connection.request(call, method, carrier.inner)


@attrs.define(eq=False)
class _AgentResponder:
    """Originator of a request of the agent; sends the response in the agent's binding."""

    _answer: ResponseCallback
    _is_stateless: bool

    def respond(self, call: InFlightRequest, result: Payload | None, error: Payload | None) -> None:
        if call.answered:
            return
        call.answered = True
        if self._is_stateless:
            self._answer(wrap_outcome(result, error), None)
        else:
            self._answer(
                None if result is None else bytes(result), None if error is None else bytes(error)
            )


@attrs.define(eq=False)
class _AgentConsumer:
    """The agent as consumer. In the stateless binding it has no connection id: it takes no
    requests, and a notification only about a request of its own."""

    _host: BridgeHost
    server_id: str
    _connection: str | None
    _ended: Callable[[bytes], object]
    _tokens: dict[bytes, InFlightRequest] = attrs.field(factory=dict)
    """Stateless requests by progress token: progress notifications name only the token."""

    def note(self, call: InFlightRequest, params: bytes | None) -> None:
        token = member_at(params or b"{}", "_meta", "progressToken")
        self._tokens = {key: of for key, of in self._tokens.items() if not of.answered}
        if token is not None:
            self._tokens[token] = call

    def respond(self, call: InFlightRequest, result: Payload | None, error: Payload | None) -> None:
        call.source.respond(call, result, error)

    def request(self, method: str, params: Payload | None, answered: ResponseCallback) -> Cancel:
        if self._connection is None:
            text = "The agent takes no requests in this binding"
            answered(None, encode_error(METHOD_NOT_FOUND, text, method))
            return lambda: None
        carrier = message_params(method, params, connection_id=self._connection)
        return self._host.agent.ask("mcp/message", carrier, answered)

    def notify(
        self, method: str, params: Payload | None, owner: InFlightRequest | None = None
    ) -> None:
        if self._connection is not None:
            carrier = message_params(method, params, connection_id=self._connection)
        else:
            owner = owner or self._tokens.get(member_at(params or b"{}", "progressToken") or b"")
            if owner is None or owner.answered:
                return
            id = str(owner.source_id)
            carrier = message_params(method, params, server_id=self.server_id, request_id=id)
        self._host.agent.send("mcp/message", carrier)

    def close(self) -> None:
        self._ended(encode_error(INTERNAL_ERROR, "The MCP connection is closed"))
