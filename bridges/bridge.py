"""`mcp-bridge`: the proxy that gives an agent the MCP servers of the ACP side.

It stands last, before the agent. What the agent can take itself passes by unchanged; a server that
is declared with `type: acp` becomes one that it can start or reach, and every connection that it
makes is carried to whoever offers the server. No such declaration ever reaches an agent that did
not say that it takes them: one hangs, others refuse the whole session.
"""

from __future__ import annotations

import importlib
import itertools
import secrets
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final, Literal

import attrs
import trio

from bridges.acp_provider import AcpProvider, Exchange, Server
from bridges.bindings import Carried, decode_carried
from bridges.declarations import (
    Abilities,
    abilities,
    http_entry,
    rewrite,
    session_of,
    stdio_entry,
    unique_name,
)
from bridges.door import Door, SocketTransport
from bridges.http import HttpDoor, HttpSession
from bridges.link import Link
from bridges.native import NativeSide
from bridges.opening import Opening
from bridges.remote_provider import RemoteProvider
from bridges.shim_consumer import ShimConsumer
from conductor.bridging import (
    INVALID_PARAMS,
    REQUEST_CANCELLED,
    Flusher,
    Limits,
    encode_error,
    with_acp,
    write_backlog,
)
from conductor.log import get_logger
from conductor.proxy import Proxy, RequestError, on

__all__ = ["McpBridge"]

_SDK_CLIENT: Final = "mcp.client.streamable_http"
_SHIM: Final = str(Path(__file__).with_name("shim.py"))

log = get_logger(component="mcp-bridge")


@attrs.define(eq=False)
class _Declaration:
    """One server of one session, as the agent got it."""

    server: Server
    name: str
    token: str
    remote: bool = False
    """Whether it is a server on the web, which the agent cannot reach itself."""
    path: str | None = None
    """Where it is served, if over HTTP."""
    links: set[Link] = attrs.field(factory=set)


@attrs.define(eq=False)
class McpBridge(Proxy):
    """`mode`: how agents without native support get their servers; "off" refuses to declare any."""

    mode: Literal["auto", "stdio", "http", "off"] = "auto"
    connections: dict[str, Link] = attrs.field(factory=dict, init=False)
    exchanges: dict[tuple[str, str], Exchange] = attrs.field(factory=dict, init=False)
    _agent: Abilities = attrs.field(factory=Abilities, init=False)
    _door: Door = attrs.field(factory=Door, init=False)
    _flusher: Flusher = attrs.field(factory=Flusher, init=False)
    _serving: bool = attrs.field(default=False, init=False)
    _names: set[str] = attrs.field(factory=set, init=False)
    """The server names that the agent was ever given."""
    _servers: dict[str, Server] = attrs.field(factory=dict, init=False)
    _sessions: dict[str, list[_Declaration]] = attrs.field(factory=dict, init=False)
    _http: HttpDoor | None = attrs.field(default=None, init=False)
    _native: NativeSide = attrs.field(init=False)
    _request_ids: itertools.count[int] = attrs.field(factory=itertools.count, init=False)
    _prefix: str = attrs.field(factory=lambda: secrets.token_hex(4), init=False)

    def __attrs_post_init__(self) -> None:
        self._native = NativeSide(self, lambda link: Opening(link, self))

    @asynccontextmanager
    async def lifespan(self) -> AsyncIterator[None]:
        try:
            yield
        finally:
            for declarations in self._sessions.values():
                for declaration in declarations:
                    for link in list(declaration.links):
                        link.close()
            self._flusher.flush()
            self._door.close()

    # -- the handshake and the sessions ------------------------------------------------------------

    @on("initialize")
    async def initialize(self, params: bytes, forward: Any) -> bytes:
        result: bytes = await forward() or b"null"
        self.learn(result)
        return result if self._way() == "none" else with_acp(result)

    def learn(self, result: bytes) -> None:
        """What the agent answered to `initialize`, also for a bridge that was not there then."""
        self._agent = abilities(result)

    @on("session/new")
    @on("session/load")
    @on("session/resume")
    @on("session/fork")
    async def set_up(self, params: bytes, forward: Any) -> bytes:
        if self._agent.acp:
            return await self._set_up_native(params, forward)
        declared: list[_Declaration] = []
        if self._way() == "http" and self._http is None:
            self._http = HttpDoor()
            self.start_soon(self._http.serve)
            await self._http.wait_open()
        changed = rewrite(params, lambda entry, taken: self._replace(entry, taken, declared))
        if changed is params:
            return await forward()  # type: ignore[no-any-return]
        if not self._serving and self._door.address is not None:
            self._serving = True
            self.start_soon(self._flusher.run)
            self.start_soon(self._door.serve, self._welcome)
        loaded = session_of(params)
        for declaration in declared:
            declaration.server.session = loaded
        try:
            result: bytes = await forward(changed)
        except BaseException:
            self._release(declared)
            raise
        session = session_of(result) or loaded or ""
        for declaration in declared:
            declaration.server.session = session
        for earlier in self._sessions.get(session, ()):
            self._door.void(earlier.token)  # what runs, runs on; but nothing starts any more
        self._sessions.setdefault(session, []).extend(declared)
        return result

    @on("session/close")
    @on("session/delete")
    async def tear_down(self, params: bytes, forward: Any) -> bytes:
        result: bytes = await forward()
        session = session_of(params) or ""
        self._release(self._sessions.pop(session, []))
        for server in [one for one in self._native.servers.values() if one.session == session]:
            self._native.release(server)
        return result

    async def _set_up_native(self, params: bytes, forward: Any) -> bytes:
        """Nothing is changed, but remembered: the provider may be of another generation."""
        found: list[Server] = []

        def note(entry: dict[str, Any], taken: set[str]) -> None:
            id = entry.get("serverId", entry.get("id"))
            if entry.get("type") == "acp" and isinstance(id, str):
                known = self._native.servers.get(id)
                way = known.way if known is not None else None
                found.append(Server(id, str(entry.get("name")), entry, session_of(params), way))

        rewrite(params, note)
        self._native.servers.update({server.id: server for server in found})
        try:
            result: bytes = await forward()
        except BaseException:
            for server in found:
                self._native.release(server)
            raise
        for server in found:
            server.session = session_of(result) or server.session
        return result

    # -- what a native agent says ------------------------------------------------------------------

    @on("mcp/connect", source="agent")
    async def connect(self, params: bytes, forward: Any) -> Any:
        return await self._native.connect(_carried(params), forward)

    @on("mcp/message", source="agent")
    async def from_agent(self, params: bytes, forward: Any) -> Any:
        return await self._native.message(_carried(params), forward)

    @on("mcp/disconnect", source="agent")
    async def disconnect(self, params: bytes, forward: Any) -> Any:
        return await self._native.disconnect(_carried(params), forward)

    def _way(self) -> Literal["native", "stdio", "http", "none"]:
        """How the agent gets servers that are declared over ACP."""
        agent = self._agent
        if agent.acp:
            return "native"
        if self.mode == "off":
            return "none"
        if self.mode == "http" and agent.http:
            return "http"
        if agent.stdio:
            return "stdio"
        return "http" if agent.http else "none"

    def _replace(
        self, entry: dict[str, Any], taken: set[str], declared: list[_Declaration]
    ) -> dict[str, Any] | None:
        if self._is_out_of_reach(entry):
            server = Server(f"url:{self.new_request_id()}", entry["name"], entry)
            name = self._name_for_agent(entry["name"], taken - {entry["name"]})
            return self._over_stdio(_Declaration(server, name, "", remote=True), declared)
        if entry.get("type") != "acp":
            return None
        way = self._way()
        if way == "none":
            why = (
                "mcp_bridge is off, and the agent takes no MCP servers over ACP"
                if self.mode == "off"
                else "the agent takes MCP servers neither over ACP nor over stdio or HTTP"
            )
            raise RequestError(INVALID_PARAMS, f"MCP server {entry.get('name')!r}: {why}")
        id = entry.get("serverId", entry.get("id"))
        if not isinstance(id, str) or not isinstance(entry.get("name"), str):
            raise RequestError(
                INVALID_PARAMS, "An MCP server of type acp needs a name and a serverId", entry
            )
        known = self._servers.get(id)
        server = Server(id, entry["name"], entry, way=known.way if known is not None else None)
        self._servers[id] = server
        name = self._name_for_agent(entry["name"], taken)
        if way == "http":
            return self._over_http(server, name, declared)
        return self._over_stdio(_Declaration(server, name, ""), declared)

    def _is_out_of_reach(self, entry: dict[str, Any]) -> bool:
        """Whether it is a server on the web, of a kind that the agent does not take."""
        takes = {"http": self._agent.http, "sse": self._agent.sse}.get(str(entry.get("type")), True)
        given = isinstance(entry.get("name"), str) and isinstance(entry.get("url"), str)
        return not takes and given and self._agent.stdio and self.mode != "off"

    def _over_stdio(
        self, declaration: _Declaration, declared: list[_Declaration]
    ) -> dict[str, Any]:
        address = self._door.open()
        declaration.token = self._door.issue(declaration)
        declared.append(declaration)
        argv = [sys.executable, "-I", "-S", _SHIM]
        env = {"ACP_MCP_BRIDGE": address, "ACP_MCP_TOKEN": declaration.token}
        return stdio_entry(declaration.name, argv, env, self._agent.version)

    def _over_http(self, server: Server, name: str, declared: list[_Declaration]) -> dict[str, Any]:
        assert self._http is not None
        assert self._http.origin is not None
        declaration = _Declaration(server, name, "")

        def connect(session: HttpSession) -> None:
            link = session.link = Link(session, lambda link: Opening(link, self))
            declaration.links.add(link)
            AcpProvider(server, link, self.client, self).open()

        path, token = self._http.publish(connect)
        declaration.path = path
        declared.append(declaration)
        authorization = {"Authorization": f"Bearer {token}"}
        return http_entry(name, self._http.origin + path, authorization)

    def _name_for_agent(self, name: str, taken: set[str]) -> str:
        if self._agent.by_name:
            name = unique_name(name, self._names | taken)
        self._names.add(name)
        return name

    def _release(self, declarations: list[_Declaration]) -> None:
        for declaration in declarations:
            self._door.void(declaration.token)
            if self._http is not None and declaration.path is not None:
                self._http.withdraw(declaration.path)
            if self._servers.get(declaration.server.id) is declaration.server:
                del self._servers[declaration.server.id]
            for link in list(declaration.links):
                link.close()

    # -- shims -------------------------------------------------------------------------------------

    async def _welcome(self, declaration: object, transport: SocketTransport) -> None:
        """One shim, from its token to its end."""
        assert isinstance(declaration, _Declaration)
        consumer = ShimConsumer(transport, self._flusher, Limits().max_message_bytes)
        link = consumer.link = Link(consumer, lambda link: Opening(link, self))
        declaration.links.add(link)
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(write_backlog, consumer.connection, self._flusher)
                nursery.start_soon(self._end, consumer, nursery.cancel_scope)
                if declaration.remote:
                    await trio.to_thread.run_sync(importlib.import_module, _SDK_CLIENT)
                    remote = RemoteProvider(declaration.server.declaration, link)
                    nursery.start_soon(remote.run)
                else:
                    AcpProvider(declaration.server, link, self.client, self).open()
                await self._read(consumer)
                nursery.cancel_scope.cancel()
        finally:
            link.close()
            declaration.links.discard(link)
            transport.close()
            self._flusher.made_room()

    async def _read(self, consumer: ShimConsumer) -> None:
        """Route what the agent's MCP client says, not faster than it and the others read."""
        connection = consumer.connection
        while chunk := await consumer.transport.receive():
            if consumer.ended.is_set():
                continue
            self._flusher.feed(connection, chunk)
            while consumer.crowded and not connection.closed:
                await self._flusher.wait_room()
            await self.wait_room()

    async def _end(self, consumer: ShimConsumer, scope: trio.CancelScope) -> None:
        """When the bridge ends it, a client that reads still gets what was said to it."""
        await consumer.ended.wait()
        self._flusher.made_room()
        await trio.sleep(_LAST_BYTES)
        scope.cancel()

    # -- what servers say --------------------------------------------------------------------------

    @on("mcp/message", source="client")
    async def from_server(self, params: bytes, forward: Any) -> Any:
        """A request or a notification of a server's."""
        carried = _carried(params)
        exchange = self._exchange(carried)
        link = exchange.link if exchange is not None else self._link(carried)
        if link is None:
            return await self._not_ours(carried, forward)
        method = carried.method if isinstance(carried.method, str) else ""
        if self.answering:
            self._ask_consumer(link, method, carried.inner)
        else:
            owner = exchange.call if exchange is not None else None
            link.server_notification(method, carried.inner, owner)
            await self._until_read(link)
        return None

    def _exchange(self, carried: Carried) -> Exchange | None:
        if carried.server is None or not isinstance(carried.requestId, str):
            return None
        return self.exchanges.get((carried.server, carried.requestId))

    def _link(self, carried: Carried) -> Link | None:
        if not isinstance(carried.connectionId, str):
            return None
        return self.connections.get(carried.connectionId)

    async def _not_ours(self, carried: Carried, forward: Any) -> Any:
        if self._agent.acp:
            return await forward()
        if self.answering:
            raise RequestError(
                INVALID_PARAMS,
                "Unknown MCP connection",
                {"connectionId": carried.connectionId or None, "serverId": carried.server},
            )
        log.debug("dropped a notification for an unknown MCP connection")
        return None

    def _ask_consumer(self, link: Link, method: str, params: bytes | None) -> None:
        cancel: Callable[[], None] | None = None

        def cancelled() -> None:
            if cancel is not None:
                cancel()
            answer(None, _CANCELLED)

        answer = self.defer(cancelled)
        cancel = link.server_request(method, params, answer)

    async def _until_read(self, link: Link) -> None:
        """Hold the lane while the consumer does not read what it was told."""
        consumer = link.consumer
        while isinstance(consumer, ShimConsumer) and consumer.crowded and not link.closed:
            await self._flusher.wait_room()

    # -- Routes and Surroundings: what connections need of the bridge ------------------------------

    def new_request_id(self) -> str:
        return f"{self._prefix}-{next(self._request_ids)}"

    def prepare(self, then: Callable[[], None]) -> None:
        self.start_soon(self._import_types, then)

    def later(self, seconds: float, then: Callable[[], None]) -> None:
        self.start_soon(self._after, seconds, then)

    async def _import_types(self, then: Callable[[], None]) -> None:
        """The types of MCP take a third of a second to import, and most links never need them."""
        for module in ("bridges.old_to_new", "bridges.new_to_old"):
            await trio.to_thread.run_sync(importlib.import_module, module)
        then()

    async def _after(self, seconds: float, then: Callable[[], None]) -> None:
        await trio.sleep(seconds)
        then()


def _carried(params: bytes) -> Carried:
    try:
        return decode_carried(params)
    except ValueError as exc:
        raise RequestError(INVALID_PARAMS, f"No MCP message: {exc}") from None


_CANCELLED: Final = encode_error(REQUEST_CANCELLED, "Request cancelled")
_LAST_BYTES: Final = 5.0
"""Seconds that the MCP client of a released declaration has to read what is left for it."""
