"""`mcp-bridge`: the proxy that connects an agent to MCP servers over ACP.

It is the last proxy, before the agent. A declaration that the agent supports is forwarded
unchanged; one with `type: acp` is replaced by a stdio server (a shim), and every MCP connection of
the agent is forwarded to the server over ACP. A declaration of type `acp` never reaches an agent
that did not announce support: one such agent hangs, others refuse the session.
"""

from __future__ import annotations

import itertools
import secrets
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any, Final, Literal

import attrs

from bridges.acp_provider import StatelessExchange
from bridges.bindings import CarrierParams, decode_carrier
from bridges.declarations import (
    Declaration,
    DeclarationRewriter,
    agent_mcp_support,
    session_id_in,
    without_servers,
)
from bridges.mcp_connection import McpConnection
from bridges.native_agent import NativeAgent
from bridges.server_starts import ServerStarts, required_error
from bridges.shim_connections import ShimConnections
from conductor.bridge_api import (
    INVALID_PARAMS,
    REQUEST_CANCELLED,
    Limits,
    Notices,
    Severity,
    encode_error,
    with_mcp_over_acp,
    with_server_names,
)
from conductor.log import get_logger
from conductor.proxy import Proxy, RequestError, on

__all__ = ["McpBridge"]


log = get_logger(component="mcp-bridge")


@attrs.define(eq=False)
class McpBridge(Proxy):
    """Connect agents to MCP servers over ACP. Added to a chain automatically.

    Options:
        mode              how agents without native support get the servers; "off" refuses sessions
                          that declare any
        sandboxed         whether the agent runs in a sandbox, where it sees no socket of the bridge
                          in the file system
        offline           whether that sandbox has no network either
        start_timeout     seconds in which a server must answer
        requires_servers  whether a server that does not answer fails the session set-up; else it is
                          left out
    """

    mode: Literal["auto", "stdio", "off"] = "auto"
    sandboxed: bool = False
    offline: bool = False
    start_timeout: float = 30.0
    requires_servers: bool = False
    limits: Limits = attrs.field(factory=Limits, init=False)
    """Limits of the chain."""
    connections: dict[str, McpConnection] = attrs.field(factory=dict, init=False)
    exchanges: dict[tuple[str, str], StatelessExchange] = attrs.field(factory=dict, init=False)
    _rewriter: DeclarationRewriter = attrs.field(init=False)
    _sessions: dict[str, list[Declaration]] = attrs.field(factory=dict, init=False)
    _starts: ServerStarts = attrs.field(init=False)
    _as_notice: bool = attrs.field(default=False, init=False)
    _shims: ShimConnections = attrs.field(init=False)
    _native: NativeAgent = attrs.field(init=False)
    _request_ids: itertools.count[int] = attrs.field(factory=itertools.count, init=False)
    _prefix: str = attrs.field(factory=lambda: secrets.token_hex(4), init=False)

    def __attrs_post_init__(self) -> None:
        self._starts = ServerStarts(self._notify, self.start_timeout)
        self._shims = ShimConnections(self, self._starts)
        self._rewriter = DeclarationRewriter(
            self.mode,
            self.new_request_id,
            sandboxed=self.sandboxed,
            offline=self.offline,
        )
        self._native = NativeAgent(self, self._rewriter.servers)

    @asynccontextmanager
    async def lifespan(self) -> AsyncIterator[None]:
        try:
            yield
        finally:
            for declarations in self._sessions.values():
                self._rewriter.release(declarations)
            self._shims.flush()
            self._rewriter.shim_listener.close()

    # -- initialize and session set-up -------------------------------------------------------------

    @on("initialize")
    async def initialize(self, params: bytes, forward: Any) -> bytes:
        result: bytes = await forward() or b"null"
        self.set_initialization(params, result)
        return result if self._rewriter.delivery() == "none" else with_mcp_over_acp(result)

    def set_initialization(self, params: bytes | None, result: bytes) -> None:
        """Take the client's `initialize` params and the agent's result; also called for a bridge
        that is added later."""
        self._rewriter.agent = agent = agent_mcp_support(result)
        self._as_notice = Notices.of(params, agent.acp_version).as_notice

    @on("session/new")
    @on("session/fork")
    async def set_up_new(self, params: bytes, forward: Any) -> bytes:
        return await self._set_up(params, forward, None)

    @on("session/load")
    @on("session/resume")
    async def set_up_known(self, params: bytes, forward: Any) -> bytes:
        return await self._set_up(params, forward, session_id_in(params))

    async def _set_up(self, params: bytes, forward: Any, session: str | None) -> bytes:
        declared: list[Declaration] = []
        try:
            changed = self._rewriter.rewrite(params, declared)
            if not declared:
                return await forward(params)  # type: ignore[no-any-return]
            self._shims.listen(self._rewriter.shim_listener)
            for declaration in declared:
                declaration.server.session = session
            result: bytes = await forward(changed)
            if self.requires_servers:
                await self._wait_required(declared, result)
        except RequestError as exc:
            failed = [declaration for declaration in declared if declaration.problem is not None]
            self._rewriter.release(declared)
            if not failed:
                raise
            if self.requires_servers:
                raise required_error(failed) from exc
            left = without_servers(params, [each.server.declaration for each in failed])
            result = await self._set_up(left, forward, session)
            for declaration in failed:
                declaration.server.session = session_id_in(result) or session or ""
            self.after_answer(self._report_starts, failed)
            return result
        except BaseException:
            self._rewriter.release(declared)
            raise
        session = session_id_in(result) or session or ""
        for declaration in declared:
            declaration.server.session = session
        earlier = self._sessions.get(session, [])
        for declaration in earlier:
            # No new shim may connect; connected ones continue.
            self._rewriter.shim_listener.revoke(declaration.token)
        self._rewriter.release([each for each in earlier if not each.mcp_connections])
        kept = [declaration for declaration in earlier if declaration.mcp_connections]
        self._sessions[session] = kept + declared
        self.after_answer(self._report_starts, declared)
        renamed = {d.name: d.server.name for d in declared if d.name != d.server.name}
        return with_server_names(result, renamed)

    async def _wait_required(self, declared: list[Declaration], result: bytes) -> None:
        """Wait for the servers of a session that requires them; if one fails, close the session."""
        try:
            await self._starts.wait_all([each for each in declared if each.token])
        except RequestError:
            session = session_id_in(result)
            if self._rewriter.agent.closes_sessions and session is not None:
                self.agent.ask("session/close", {"sessionId": session}, lambda *_: None)
            raise

    async def _report_starts(self, declared: list[Declaration]) -> None:
        self._starts.set_up(declared)

    def _notify(
        self, declaration: Declaration, title: str, detail: str | None, severity: Severity
    ) -> None:
        if session := declaration.server.session:
            params = Notices(self._as_notice).params(session, title, detail, severity)
            self.client.send("session/update", params)

    @on("session/close")
    @on("session/delete")
    async def tear_down(self, params: bytes, forward: Any) -> bytes:
        result: bytes = await forward()
        session = session_id_in(params) or ""
        self._rewriter.release(self._sessions.pop(session, []))
        return result

    # -- messages of a native agent ----------------------------------------------------------------

    @on("mcp/connect", source="agent")
    async def connect(self, params: bytes, forward: Any) -> Any:
        return await self._native.connect(_carrier_params(params), forward)

    @on("mcp/message", source="agent")
    async def from_agent(self, params: bytes, forward: Any) -> Any:
        return await self._native.message(_carrier_params(params), forward)

    @on("mcp/disconnect", source="agent")
    async def disconnect(self, params: bytes, forward: Any) -> Any:
        return await self._native.disconnect(_carrier_params(params), forward)

    # -- messages of servers -----------------------------------------------------------------------

    @on("mcp/message", source="client")
    async def from_server(self, params: bytes, forward: Any) -> Any:
        """Handle a request or a notification of a server."""
        carrier = _carrier_params(params)
        exchange = self._exchange(carrier)
        mcp_connection = (
            exchange.mcp_connection if exchange is not None else self._connection_of(carrier)
        )
        if mcp_connection is None:
            return await self._on_unknown_connection(carrier, forward)
        method = carrier.method if isinstance(carrier.method, str) else ""
        if self.answering:
            self._ask_consumer(mcp_connection, method, carrier.inner)
        else:
            owner = exchange.call if exchange is not None else None
            mcp_connection.server_notification(method, carrier.inner, owner)
            await self._shims.wait_read(mcp_connection)
        return None

    def _exchange(self, carrier: CarrierParams) -> StatelessExchange | None:
        if carrier.server is None or not isinstance(carrier.requestId, str):
            return None
        return self.exchanges.get((carrier.server, carrier.requestId))

    def _connection_of(self, carrier: CarrierParams) -> McpConnection | None:
        if not isinstance(carrier.connectionId, str):
            return None
        return self.connections.get(carrier.connectionId)

    async def _on_unknown_connection(self, carrier: CarrierParams, forward: Any) -> Any:
        if self._rewriter.agent.acp:
            return await forward()
        if self.answering:
            raise RequestError(
                INVALID_PARAMS,
                "Unknown MCP connection",
                {"connectionId": carrier.connectionId or None, "serverId": carrier.server},
            )
        log.debug("notification dropped: unknown MCP connection")
        return None

    def _ask_consumer(
        self, mcp_connection: McpConnection, method: str, params: bytes | None
    ) -> None:
        cancel: Callable[[], None] | None = None

        def cancelled() -> None:
            if cancel is not None:
                cancel()
            answer(None, _CANCELLED)

        answer = self.defer(cancelled)
        cancel = mcp_connection.server_request(method, params, answer)

    def unread_bytes(self) -> int:
        return self._shims.unread_bytes()

    def new_request_id(self) -> str:
        return f"{self._prefix}-{next(self._request_ids)}"


def _carrier_params(params: bytes) -> CarrierParams:
    try:
        return decode_carrier(params)
    except ValueError as exc:
        raise RequestError(INVALID_PARAMS, f"Not an MCP message: {exc}") from None


_CANCELLED: Final = encode_error(REQUEST_CANCELLED, "Request cancelled")
