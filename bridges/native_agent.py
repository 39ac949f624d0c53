"""Translation between bindings, for agents with native support of MCP over ACP.

`mcp/*` messages of such an agent are forwarded. Only if the agent and the server understand
different bindings, the bridge terminates the agent's connection as a consumer, and connects to the
server as for a shim.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

import attrs
import msgspec

from bridges.acp_provider import AcpProvider, ConnectionTable, DeclaredServer
from bridges.bindings import (
    Binding,
    CarrierParams,
    alternatives,
    candidates,
    message_params,
    wrap_outcome,
)
from bridges.declarations import rewrite, session_id_in
from bridges.interfaces import Cancel
from bridges.mcp_connection import ConnectionMode, McpConnection
from bridges.mcp_protocol import progress_token, reported_token
from conductor.bridge_api import (
    INTERNAL_ERROR,
    INVALID_REQUEST,
    METHOD_NOT_FOUND,
    REQUEST_CANCELLED,
    InFlightRequest,
    Limits,
    Payload,
    ResponseCallback,
    encode_error,
)
from conductor.proxy import Peer, RequestError

__all__ = ["NativeAgent"]


class BridgeContext(ConnectionTable, Protocol):
    """The part of `McpBridge` that is used here."""

    limits: Limits

    @property
    def client(self) -> Peer: ...

    @property
    def agent(self) -> Peer: ...

    @property
    def answering(self) -> bool: ...

    def defer(self, cancelled: Callable[[], None]) -> ResponseCallback: ...


@attrs.define(eq=False)
class NativeAgent:
    """The connections of a native agent that the bridge translates."""

    owner: BridgeContext
    begin: Callable[[McpConnection], ConnectionMode]
    servers: dict[str, DeclaredServer] = attrs.field(factory=dict)
    mcp_connections: dict[str, McpConnection] = attrs.field(factory=dict)
    """By connection id; in the stateless binding by server id."""
    server_of: dict[str, DeclaredServer] = attrs.field(factory=dict)
    """Server by connection id."""

    async def set_up(self, params: bytes, forward: Any) -> bytes:
        """Forward a session set-up unchanged; record its servers, for which bindings may differ."""
        found: list[DeclaredServer] = []

        def note(entry: dict[str, Any], taken: set[str]) -> None:
            id = entry.get("serverId", entry.get("id"))
            if entry.get("type") == "acp" and isinstance(id, str):
                known = self.servers.get(id)
                server = DeclaredServer(id, str(entry.get("name")), entry, session_id_in(params))
                if known is not None:
                    server.binding, server.connections = known.binding, known.connections
                    server.connecting = known.connecting
                found.append(server)

        rewrite(params, note)
        self.servers.update({server.id: server for server in found})
        try:
            result: bytes = await forward()
        except BaseException:
            for server in found:
                self.release(server)
            raise
        for server in found:
            server.session = session_id_in(result) or server.session
        return result

    async def connect(self, carrier: CarrierParams, forward: Any) -> Any:
        key = "acpId" if isinstance(carrier.acpId, str) else "serverId"
        server = self.servers.get(carrier.server or "")
        if server is None:
            return await forward()
        own = Binding(key)  # type: ignore[arg-type]
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
        most = self.owner.limits.max_mcp_connections
        if len(server.connections) + len(server.connecting) >= most:
            problem = f"More than {most} connections to one server (max_mcp_connections)"
            raise RequestError(INVALID_REQUEST, problem)

        def cancelled() -> None:
            settle(None, encode_error(REQUEST_CANCELLED, "Request cancelled"))
            mcp_connection.close()

        def settle(result: bytes | None, error: bytes | None) -> None:
            server.connecting.discard(mcp_connection)
            answer(result, error)

        def begin(mcp_connection: McpConnection) -> ConnectionMode:
            self.mcp_connections[connection] = mcp_connection
            server.connections.add(connection)
            self.server_of[connection] = server
            settle(msgspec.json.encode({"connectionId": connection}), None)
            return self.begin(mcp_connection)

        answer = self.owner.defer(cancelled)
        connection = f"acp-conductor:{self.owner.new_request_id()}"
        consumer = _ConnectedConsumer(self.owner, connection, settle)
        mcp_connection = McpConnection(consumer, begin, refused=lambda error: settle(None, error))
        server.connecting.add(mcp_connection)
        AcpProvider(server, mcp_connection, self.owner.client, self.owner).open()
        return None

    async def message(self, carrier: CarrierParams, forward: Any) -> Any:
        if isinstance(carrier.connectionId, str):
            mcp_connection = self.mcp_connections.get(carrier.connectionId)
            if mcp_connection is None:
                return await forward()
            if self.owner.answering:
                self._ask(mcp_connection, carrier)
            else:
                mcp_connection.notification(str(carrier.method), carrier.inner)
            return None
        server = self.servers.get(carrier.server or "")
        if server is None or not self.owner.answering or server.binding == Binding(None):
            return await forward()
        if server.binding is None:
            try:
                result = await forward()
            except RequestError as exc:
                if exc.code == REQUEST_CANCELLED:
                    raise
            else:
                server.binding = Binding(None)
                return result
        mcp_connection = self.mcp_connections.get(server.id)
        if mcp_connection is None:
            mcp_connection = self.mcp_connections[server.id] = McpConnection(
                _StatelessConsumer(self.owner, server.id), self.begin
            )
            AcpProvider(server, mcp_connection, self.owner.client, self.owner).open()
        self._ask(mcp_connection, carrier)
        return None

    async def disconnect(self, carrier: CarrierParams, forward: Any) -> Any:
        mcp_connection = self.mcp_connections.pop(str(carrier.connectionId), None)
        if mcp_connection is None:
            return await forward()
        mcp_connection.close()
        server = self.server_of.pop(str(carrier.connectionId), None)
        if server is not None:
            server.connections.discard(str(carrier.connectionId))
        return {}

    def release(self, server: DeclaredServer) -> None:
        self.servers.pop(server.id, None)
        for key in (server.id, *server.connections):
            self.server_of.pop(key, None)
            mcp_connection = self.mcp_connections.pop(key, None)
            if mcp_connection is not None:
                mcp_connection.close()
        for mcp_connection in list(server.connecting):
            mcp_connection.close()

    def release_session(self, session: str) -> None:
        for server in [one for one in self.servers.values() if one.session == session]:
            self.release(server)

    def _ask(self, mcp_connection: McpConnection, carrier: CarrierParams) -> None:
        def cancelled() -> None:
            call.cancel()
            answer(None, encode_error(REQUEST_CANCELLED, "Request cancelled"))
            call.answered = True

        answer = self.owner.defer(cancelled)
        stateless = isinstance(carrier.requestId, str)
        id = carrier.requestId if isinstance(carrier.requestId, str) else None
        method = str(carrier.method)
        call = InFlightRequest(method, _AgentResponder(answer, stateless), id)
        if stateless and isinstance(mcp_connection.consumer, _StatelessConsumer):
            mcp_connection.consumer.note(call, carrier.inner)
        mcp_connection.request(call, method, carrier.inner)


@attrs.define(eq=False)
class _AgentResponder:
    """Source of a request of the agent; sends the response in the agent's binding."""

    _answer: ResponseCallback
    _stateless: bool

    def respond(self, call: InFlightRequest, result: Payload | None, error: Payload | None) -> None:
        if call.answered:
            return
        call.answered = True
        if self._stateless:
            self._answer(wrap_outcome(result, error), None)
        else:
            self._answer(
                None if result is None else bytes(result), None if error is None else bytes(error)
            )


@attrs.define(eq=False)
class _ConnectedConsumer:
    """Consumer in the connected bindings."""

    _owner: BridgeContext
    _connection: str
    _settle: ResponseCallback
    """Answers the agent's `mcp/connect`, if it is still open."""

    def respond(self, call: InFlightRequest, result: Payload | None, error: Payload | None) -> None:
        call.source.respond(call, result, error)

    def request(self, method: str, params: Payload | None, answered: ResponseCallback) -> Cancel:
        carrier = message_params(method, params, connection_id=self._connection)
        return self._owner.agent.ask("mcp/message", carrier, answered)

    def notify(
        self, method: str, params: Payload | None, owner: InFlightRequest | None = None
    ) -> None:
        carrier = message_params(method, params, connection_id=self._connection)
        self._owner.agent.send("mcp/message", carrier)

    def close(self) -> None:
        self._settle(None, encode_error(INTERNAL_ERROR, "The MCP connection is closed"))


@attrs.define(eq=False)
class _StatelessConsumer:
    """Consumer in the stateless binding: a notification without a request cannot be delivered."""

    _owner: BridgeContext
    _server: str
    _tokens: dict[bytes, InFlightRequest] = attrs.field(factory=dict)

    def note(self, call: InFlightRequest, params: bytes | None) -> None:
        """Record the progress token of a request: progress notifications name only the token."""
        token = progress_token(params)
        self._tokens = {key: of for key, of in self._tokens.items() if not of.answered}
        if token is not None:
            self._tokens[token] = call

    def respond(self, call: InFlightRequest, result: Payload | None, error: Payload | None) -> None:
        call.source.respond(call, result, error)

    def request(self, method: str, params: Payload | None, answered: ResponseCallback) -> Cancel:
        answered(
            None,
            encode_error(METHOD_NOT_FOUND, "The agent takes no requests in this binding", method),
        )
        return _nothing

    def notify(
        self, method: str, params: Payload | None, owner: InFlightRequest | None = None
    ) -> None:
        if owner is None:
            owner = self._tokens.get(reported_token(params) or b"")
        if owner is None or owner.answered:
            return
        carrier = message_params(
            method, params, server_id=self._server, request_id=str(owner.source_id)
        )
        self._owner.agent.send("mcp/message", carrier)

    def close(self) -> None:
        pass


def _nothing() -> None:
    pass
