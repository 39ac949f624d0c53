"""MCP connections of an agent without native support, through shims.

In: the connections of the agent's MCP clients, each for one replaced declaration. Out: for each an
`McpConnection` to the declared server. Messages of a server wait, in their lane, for an MCP client
that does not read; the unread bytes of the slowest shim stop the senders.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, Protocol

import attrs
import trio

from bridges.acp_provider import AcpProvider, ConnectionTable
from bridges.declaration_rewriter import Declaration
from bridges.mcp_connection import ConnectionMode, McpConnection, import_error
from bridges.remote_provider import RemoteProvider
from bridges.server_starts import ServerStarts
from bridges.shared_servers import SessionFilter, SharedServers
from bridges.shim_consumer import ShimConsumer
from bridges.shim_listener import ShimListener, SocketTransport
from conductor.bridge_api import Flusher, Limits, begin_worker, import_in_thread
from conductor.log import get_logger
from conductor.proxy import Peer

__all__ = ["AgentConnections"]

log = get_logger(component="mcp-bridge")


class ConnectionHost(ConnectionTable, Protocol):
    """The part of `McpBridge` that is used here."""

    limits: Limits

    @property
    def client(self) -> Peer: ...

    def start_soon(self, function: Callable[..., Awaitable[Any]], *args: Any) -> None: ...

    async def wait_room(self) -> None: ...

    def made_room(self) -> None: ...


@attrs.define(eq=False)
class AgentConnections:
    """The connections of one agent's MCP clients. `begin` makes the first mode of a connection."""

    host: ConnectionHost
    begin: Callable[[McpConnection], ConnectionMode]
    starts: ServerStarts
    shared: SharedServers
    shims: set[ShimConsumer] = attrs.field(factory=set, init=False)
    _flusher: Flusher = attrs.field(factory=Flusher, init=False)
    _serving: bool = attrs.field(default=False, init=False)

    def listen(self, shims: ShimListener) -> None:
        """Serve the listener once it has an address."""
        if not self._serving and shims.address is not None:
            self._serving = True
            self.host.start_soon(self._flusher.run)
            self.host.start_soon(self._signal_room)
            self.host.start_soon(_serve, shims.serve, self._serve_shim)

    def flush(self) -> None:
        self._flusher.flush()

    def unread_bytes(self) -> int:
        """Bytes that the slowest MCP client of the agent has not read: above the high watermark,
        the senders of MCP messages are not read."""
        return max((shim.connection.write_buffer.size for shim in self.shims), default=0)

    async def wait_read(self, mcp_connection: McpConnection) -> None:
        """Wait, holding the lane, while the consumer's write buffer is above the high watermark."""
        consumer = mcp_connection.consumer
        while isinstance(consumer, ShimConsumer) and consumer.crowded and not mcp_connection.closed:
            await self._flusher.wait_room()

    async def _serve_shim(self, declaration: object, transport: SocketTransport) -> None:
        """Serve the connection of one shim, after its token was accepted."""
        assert isinstance(declaration, Declaration)
        if len(declaration.mcp_connections) >= self.host.limits.max_mcp_connections:
            log.warning("MCP connection refused: too many for one server", name=declaration.name)
            return
        consumer = ShimConsumer(transport, self._flusher, self.host.limits.max_message_bytes)
        mcp_connection = consumer.mcp_connection = McpConnection(consumer, self.begin)
        self._add(declaration, mcp_connection)
        self.shims.add(consumer)
        try:
            await consumer.serve(
                self._flusher, self.host.wait_room, self._provide(declaration, mcp_connection)
            )
        finally:
            self.shims.discard(consumer)
            declaration.mcp_connections.discard(mcp_connection)
            self.host.made_room()

    def _add(self, declaration: Declaration, mcp_connection: McpConnection) -> None:
        declaration.mcp_connections.add(mcp_connection)
        self.starts.watch(declaration, mcp_connection)
        if self.shared.tracks_turns:
            mcp_connection.session_filter = SessionFilter(
                self.shared, declaration.session, declaration.name, mcp_connection
            )

    def _provide(
        self, declaration: Declaration, mcp_connection: McpConnection
    ) -> Callable[[trio.Nursery], Awaitable[None]]:
        async def provide(nursery: trio.Nursery) -> None:
            if not declaration.remote:
                host = self.host
                AcpProvider(declaration.server, mcp_connection, host.client, host).open()
                return
            try:
                await import_in_thread("mcp.client.streamable_http", "mcp.client.sse")
            except Exception as exc:
                mcp_connection.refuse(import_error(exc))
                return
            provider = RemoteProvider(
                declaration.server.declaration,
                mcp_connection,
                self.host.limits,
                partial(self.wait_read, mcp_connection),
            )
            nursery.start_soon(provider.run)

        return provide

    async def _signal_room(self) -> None:
        while True:
            await self._flusher.wait_room()
            self.host.made_room()


async def _serve(serve: Callable[..., Awaitable[None]], *args: Any) -> None:
    """Run a listener. What its connections send is not caused by the session set-up that happened
    to be the first."""
    begin_worker()
    await serve(*args)
