"""Agents that take MCP servers over ACP, and servers of another generation than theirs.

What such an agent sends is ordinary traffic. Only where nobody understands it, because the agent
speaks one binding and the provider another, the bridge stands in between: a consumer like a shim,
whose messages come from the agent's own connection.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

import attrs
import msgspec

from bridges.acp_provider import AcpProvider, Routes, Server
from bridges.bindings import (
    Carried,
    Opening,
    alternatives,
    candidates,
    members_of,
    message_params,
    outcome_result,
)
from bridges.link import Cancel, Link, Mode
from conductor.bridging import (
    INTERNAL_ERROR,
    INVALID_REQUEST,
    METHOD_NOT_FOUND,
    REQUEST_CANCELLED,
    Answered,
    Call,
    Limits,
    Payload,
    encode_error,
)
from conductor.proxy import Peer, RequestError

__all__ = ["NativeSide"]


class Owner(Routes, Protocol):
    """The bridge, as far as it is needed here."""

    limits: Limits

    @property
    def client(self) -> Peer: ...

    @property
    def agent(self) -> Peer: ...

    @property
    def answering(self) -> bool: ...

    def defer(self, cancelled: Callable[[], None]) -> Answered: ...


@attrs.define(eq=False)
class NativeSide:
    """The connections that the bridge carries for a native agent."""

    owner: Owner
    begin: Callable[[Link], Mode]
    servers: dict[str, Server] = attrs.field(factory=dict)
    links: dict[str, Link] = attrs.field(factory=dict)
    """By connection id, or by server id for the stateless binding."""
    server_of: dict[str, Server] = attrs.field(factory=dict)
    """The servers of connections."""

    async def connect(self, carried: Carried, forward: Any) -> Any:
        key = "acpId" if isinstance(carried.acpId, str) else "serverId"
        server = self.servers.get(carried.server or "")
        if server is None:
            return await forward()
        own = Opening(key)  # type: ignore[arg-type]
        if server.way in (None, own) and own in candidates(server.declaration):
            try:
                result = await forward()
            except RequestError as exc:
                others = [way for way in candidates(server.declaration) if way != own]
                if server.way == own or not alternatives(own, exc.code, others):
                    raise
            else:
                server.way = own
                return result
        most = self.owner.limits.max_mcp_connections
        if len(server.connections) + len(server.opening) >= most:
            problem = f"More than {most} connections to one server (max_mcp_connections)"
            raise RequestError(INVALID_REQUEST, problem)

        def cancelled() -> None:
            settle(None, encode_error(REQUEST_CANCELLED, "Request cancelled"))
            link.close()

        def settle(result: bytes | None, error: bytes | None) -> None:
            server.opening.discard(link)
            answer(result, error)

        def begin(link: Link) -> Mode:
            self.links[connection] = link
            server.connections.add(connection)
            self.server_of[connection] = server
            settle(msgspec.json.encode({"connectionId": connection}), None)
            return self.begin(link)

        answer = self.owner.defer(cancelled)
        connection = f"acp-conductor:{self.owner.new_request_id()}"
        consumer = _Connected(self.owner, connection, settle)
        link = Link(consumer, begin, refused=lambda error: settle(None, error))
        server.opening.add(link)
        AcpProvider(server, link, self.owner.client, self.owner).open()
        return None

    async def message(self, carried: Carried, forward: Any) -> Any:
        if isinstance(carried.connectionId, str):
            link = self.links.get(carried.connectionId)
            if link is None:
                return await forward()
            if self.owner.answering:
                self._ask(link, carried)
            else:
                link.notification(str(carried.method), carried.inner)
            return None
        server = self.servers.get(carried.server or "")
        if server is None or not self.owner.answering or server.way == Opening(None):
            return await forward()
        if server.way is None:
            try:
                result = await forward()
            except RequestError as exc:
                if exc.code == REQUEST_CANCELLED:
                    raise
            else:
                server.way = Opening(None)
                return result
        link = self.links.get(server.id)
        if link is None:
            link = self.links[server.id] = Link(_Stateless(self.owner, server.id), self.begin)
            AcpProvider(server, link, self.owner.client, self.owner).open()
        self._ask(link, carried)
        return None

    async def disconnect(self, carried: Carried, forward: Any) -> Any:
        link = self.links.pop(str(carried.connectionId), None)
        if link is None:
            return await forward()
        link.close()
        server = self.server_of.pop(str(carried.connectionId), None)
        if server is not None:
            server.connections.discard(str(carried.connectionId))
        return {}

    def release(self, server: Server) -> None:
        self.servers.pop(server.id, None)
        for key in (server.id, *server.connections):
            self.server_of.pop(key, None)
            link = self.links.pop(key, None)
            if link is not None:
                link.close()
        for link in list(server.opening):
            link.close()

    def _ask(self, link: Link, carried: Carried) -> None:
        def cancelled() -> None:
            call.cancel()
            answer(None, encode_error(REQUEST_CANCELLED, "Request cancelled"))
            call.answered = True

        answer = self.owner.defer(cancelled)
        stateless = isinstance(carried.requestId, str)
        id = carried.requestId if isinstance(carried.requestId, str) else None
        method = str(carried.method)
        call = Call(method, _Asker(answer, stateless), id)
        if stateless and isinstance(link.consumer, _Stateless):
            link.consumer.note(call, carried.inner)
        link.request(call, method, carried.inner)


@attrs.define(eq=False)
class _Asker:
    """Where the answer to a request of the agent's goes, in the form of its binding."""

    _answer: Answered
    _stateless: bool

    def respond(self, call: Call, result: Payload | None, error: Payload | None) -> None:
        if call.answered:
            return
        call.answered = True
        if self._stateless:
            self._answer(outcome_result(result, error), None)
        else:
            self._answer(
                None if result is None else bytes(result), None if error is None else bytes(error)
            )


@attrs.define(eq=False)
class _Connected:
    """A consumer that connected."""

    _owner: Owner
    _connection: str
    _settle: Answered
    """Answers the agent's `mcp/connect`, if that is still open."""

    def respond(self, call: Call, result: Payload | None, error: Payload | None) -> None:
        call.source.respond(call, result, error)

    def request(self, method: str, params: Payload | None, answered: Answered) -> Cancel:
        carried = message_params(method, params, connection_id=self._connection)
        return self._owner.agent.ask("mcp/message", carried, answered)

    def notify(self, method: str, params: Payload | None, owner: Call | None = None) -> None:
        carried = message_params(method, params, connection_id=self._connection)
        self._owner.agent.send("mcp/message", carried)

    def close(self) -> None:
        self._settle(None, encode_error(INTERNAL_ERROR, "The MCP connection is closed"))


@attrs.define(eq=False)
class _Stateless:
    """A consumer that names a request in every message; what is about none cannot be told it."""

    _owner: Owner
    _server: str
    _tokens: dict[bytes, Call] = attrs.field(factory=dict)

    def note(self, call: Call, params: bytes | None) -> None:
        """Remember the progress token of a request: progress names nothing else."""
        meta = members_of(params).get("_meta") if params is not None else None
        token = members_of(meta).get("progressToken") if meta is not None else None
        self._tokens = {key: of for key, of in self._tokens.items() if not of.answered}
        if token is not None:
            self._tokens[bytes(token)] = call

    def respond(self, call: Call, result: Payload | None, error: Payload | None) -> None:
        call.source.respond(call, result, error)

    def request(self, method: str, params: Payload | None, answered: Answered) -> Cancel:
        answered(None, encode_error(METHOD_NOT_FOUND, "The agent cannot be asked", method))
        return _nothing

    def notify(self, method: str, params: Payload | None, owner: Call | None = None) -> None:
        if owner is None and params is not None:
            token = members_of(params).get("progressToken")
            owner = self._tokens.get(bytes(token)) if token is not None else None
        if owner is None or owner.answered:
            return
        carried = message_params(
            method, params, server_id=self._server, request_id=str(owner.source_id)
        )
        self._owner.agent.send("mcp/message", carried)

    def close(self) -> None:
        pass


def _nothing() -> None:
    pass
