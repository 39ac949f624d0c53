"""MCP connections of an agent without native support, through shims.

In: the connections of the agent's MCP clients, each for one replaced declaration. Out: for each an
`McpConnection` to the declared server. Messages of a server wait, in their lane, for an MCP client
that does not read; the unread bytes of the slowest shim stop the senders.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, Final

import attrs
import msgspec
import trio

from bridges.acp_provider import AcpProvider, BridgeHost
from bridges.declarations import Declaration
from bridges.mcp_connection import CANCELLED, Cancel, McpConnection
from bridges.remote_provider import RemoteProvider
from bridges.revisions import Handshake
from bridges.server_starts import ServerStarts
from bridges.shim_listener import ShimListener, ShimTransport
from conductor.bridge_api import (
    DECODE_ERRORS,
    HIGH_WATERMARK,
    INTERNAL_ERROR,
    Connection,
    Flusher,
    Id,
    InFlightRequest,
    Limits,
    Malformed,
    NotificationBatch,
    Payload,
    ResponseCallback,
    begin_worker,
    encode_error,
    encode_id,
    import_in_thread,
    notification_pieces,
    request_pieces,
    write_loop,
)
from conductor.log import get_logger

__all__ = ["ShimConnections", "ShimConsumer"]

_FLUSH_TIMEOUT: Final = 5.0
"""Seconds that the MCP client of a released declaration has to read the remaining messages."""
_POLL_SECONDS: Final = 1.0
"""Seconds between checks whether a shim that is not read is still connected."""
_CLIENT_GONE: Final = encode_error(INTERNAL_ERROR, "The MCP client is gone")

log = get_logger(component="mcp-bridge")


@attrs.define(eq=False)
class ShimConnections:
    """The connections of one agent's MCP clients."""

    host: BridgeHost
    starts: ServerStarts
    shims: set[ShimConsumer] = attrs.field(factory=set, init=False)
    _flusher: Flusher = attrs.field(factory=Flusher, init=False)
    _serving: bool = attrs.field(default=False, init=False)

    def listen(self, shims: ShimListener) -> None:
        """Serve the listener once it has an address."""
        if not self._serving and shims.address is not None:
            self._serving = True
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

    async def _serve_shim(self, declaration: object, transport: ShimTransport) -> None:
        """Serve the connection of one shim, after its token was accepted."""
        assert isinstance(declaration, Declaration)
        host = self.host
        if len(declaration.mcp_connections) >= host.limits.max_mcp_connections:
            log.warning("MCP connection refused: too many for one server", name=declaration.name)
            return
        consumer = ShimConsumer(transport, self._flusher, host.limits.max_message_bytes)
        mcp_connection = McpConnection(consumer, Handshake, host.start_soon)
        consumer.mcp_connection = mcp_connection
        declaration.mcp_connections.add(mcp_connection)
        self.shims.add(consumer)
        try:
            provide = partial(self._provide, declaration, mcp_connection)
            await consumer.serve(self._flusher, host.wait_room, provide)
        finally:
            self.shims.discard(consumer)
            declaration.mcp_connections.discard(mcp_connection)
            host.made_room()

    async def _provide(
        self, declaration: Declaration, mcp_connection: McpConnection, nursery: trio.Nursery
    ) -> None:
        host = self.host
        self.starts.watch(declaration, mcp_connection, nursery)
        if not declaration.is_remote:
            AcpProvider(declaration.server, mcp_connection, host).open()
            return
        try:
            await import_in_thread("mcp.client.streamable_http", "mcp.client.sse")
        except Exception as exc:
            error = encode_error(INTERNAL_ERROR, "The MCP SDK cannot be imported", str(exc))
            mcp_connection.refuse(error)
            return
        wait_read = partial(self.wait_read, mcp_connection)
        provider = RemoteProvider(declaration.server, mcp_connection, host.limits, wait_read)
        nursery.start_soon(provider.run)

    async def _signal_room(self) -> None:
        while True:
            await self._flusher.wait_room()
            self.host.made_room()


async def _serve(serve: Callable[..., Awaitable[None]], *args: Any) -> None:
    """Run a listener. What its connections send is not caused by the session set-up that happened
    to be the first."""
    begin_worker()
    await serve(*args)


class ShimConsumer:
    """Consumer of an `McpConnection` and receiver of the socket's JSON-RPC `Connection`."""

    def __init__(self, transport: ShimTransport, flusher: Flusher, limit: int) -> None:
        self.transport = transport
        self.connection = Connection(
            transport, self, flusher, answers_malformed=True, limits=Limits(max_message_bytes=limit)
        )
        self.mcp_connection: McpConnection | None = None
        self.ended = trio.Event()
        """Set when the MCP connection is closed."""

    @property
    def crowded(self) -> bool:
        """Whether the write buffer toward the agent is above the high watermark."""
        return self.connection.write_buffer.size > HIGH_WATERMARK

    async def serve(
        self,
        flusher: Flusher,
        wait_room: Callable[[], Awaitable[None]],
        provide: Callable[[trio.Nursery], Awaitable[None]],
    ) -> None:
        """Serve the shim until it disconnects. `provide` starts the provider."""
        assert self.mcp_connection is not None
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(write_loop, self.connection, flusher)
                nursery.start_soon(self._end, flusher, nursery.cancel_scope)
                await provide(nursery)
                await self._read(flusher, wait_room)
                nursery.cancel_scope.cancel()
        finally:
            self.mcp_connection.close()
            self.transport.close()
            flusher.made_room()

    async def _read(self, flusher: Flusher, wait_room: Callable[[], Awaitable[None]]) -> None:
        """Route messages of the agent's MCP client, with back-pressure.

        Stops reading while the client does not read, while the queue toward the server is full
        (before `mcp/connect` is answered nothing leaves it), or while the chain has back-pressure.
        """
        assert self.mcp_connection is not None
        connection = self.connection
        self.mcp_connection.made_room = flusher.made_room
        while chunk := await self.transport.receive():
            if self.ended.is_set():
                continue
            if connection.feed_partial(chunk):
                await flusher.route_rest(connection)
            flusher.flush()
            while (self.crowded or self.mcp_connection.crowded) and not connection.closed:
                if self.transport.peer_closed_write():
                    break  # read to EOF, to notice that the client is gone
                with trio.move_on_after(_POLL_SECONDS):
                    await flusher.wait_room()
            await wait_room()

    async def _end(self, flusher: Flusher, scope: trio.CancelScope) -> None:
        """After the bridge closes the connection, give the client 5 s to read the rest."""
        await self.ended.wait()
        flusher.made_room()
        await trio.sleep(_FLUSH_TIMEOUT)
        scope.cancel()

    # -- Receiver: messages of the agent -----------------------------------------------------------

    def on_request(self, call: InFlightRequest, method: str, params: Payload | None) -> None:
        assert self.mcp_connection is not None
        self.mcp_connection.request(call, method, params)

    def on_notification(self, method: str, params: Payload | None) -> None:
        assert self.mcp_connection is not None
        if method != CANCELLED:
            self.mcp_connection.notification(method, params)
            return
        call = self.connection.received.pop(_cancelled_id(params), None)
        if call is not None:
            call.cancel()
            call.answered = True  # a cancelled request gets no answer (MCP, cancellation)

    def on_notifications(self, run: NotificationBatch) -> None:
        for each in run.params:
            self.on_notification(run.method, each)

    def on_response(
        self, call: InFlightRequest, result: Payload | None, error: Payload | None
    ) -> None:
        call.source.respond(call, result, error)

    def on_malformed(self, frame: Malformed, call: InFlightRequest | None) -> None:
        log.warning("not a message", sender="an MCP client", reason=frame.reason)
        if call is not None:
            error = encode_error(INTERNAL_ERROR, "The response to this request was malformed")
            call.source.respond(call, None, error)

    # -- Consumer ----------------------------------------------------------------------------------

    def respond(self, call: InFlightRequest, result: Payload | None, error: Payload | None) -> None:
        self.connection.respond(call, result, error)

    def request(self, method: str, params: Payload | None, answered: ResponseCallback) -> Cancel:
        connection = self.connection
        call = InFlightRequest(method, _ClientResponder(answered))
        id = connection.open(call)
        connection.write(request_pieces(id, method, params))

        def cancel() -> None:
            if connection.sent.pop(id, None) is not None:
                gone = b'{"requestId":%b}' % encode_id(id)
                connection.write(notification_pieces(CANCELLED, gone))

        return cancel

    def notify(
        self, method: str, params: Payload | None, owner: InFlightRequest | None = None
    ) -> None:
        self.connection.write(notification_pieces(method, params))

    def close(self) -> None:
        unanswered = list(self.connection.sent.values())
        self.connection.sent.clear()
        for call in unanswered:
            call.source.respond(call, None, _CLIENT_GONE)
        self.connection.close_writing()
        self.ended.set()


@attrs.define(eq=False)
class _ClientResponder:
    """Source of a request to the agent's MCP client; passes on its response."""

    _answered: ResponseCallback

    def respond(self, call: InFlightRequest, result: Payload | None, error: Payload | None) -> None:
        self._answered(
            None if result is None else bytes(result), None if error is None else bytes(error)
        )


class _Cancelled(msgspec.Struct):
    requestId: int | str | None = None


_decode_cancelled = msgspec.json.Decoder(_Cancelled).decode


def _cancelled_id(params: Payload | None) -> Id:
    try:
        return _decode_cancelled(params if params is not None else b"{}").requestId
    except DECODE_ERRORS:
        return None
