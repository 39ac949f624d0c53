"""Consumer of a shim: one MCP connection, as JSON-RPC lines on the shim's socket."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final

import attrs
import msgspec
import trio

from bridges.interfaces import Cancel
from bridges.mcp_connection import McpConnection
from bridges.mcp_protocol import CANCELLED
from bridges.shim_listener import SocketTransport
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
    encode_error,
    encode_id,
    notification_pieces,
    request_pieces,
    write_loop,
)
from conductor.log import get_logger

__all__ = ["ShimConsumer", "cancelled_id"]

log = get_logger(component="mcp-bridge")


class ShimConsumer:
    """Consumer of an `McpConnection` and receiver of the socket's JSON-RPC `Connection`."""

    def __init__(self, transport: SocketTransport, flusher: Flusher, limit: int) -> None:
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
            if flusher.feed(connection, chunk):
                await flusher.route_rest(connection)
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
        call = self.connection.received.pop(cancelled_id(params), None)
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


_FLUSH_TIMEOUT: Final = 5.0
"""Seconds that the MCP client of a released declaration has to read the remaining messages."""
_POLL_SECONDS: Final = 1.0
"""Seconds between checks whether a shim that is not read is still connected."""
_CLIENT_GONE = encode_error(INTERNAL_ERROR, "The MCP client is gone")
_decode_cancelled = msgspec.json.Decoder(_Cancelled).decode


def cancelled_id(params: Payload | None) -> Id:
    try:
        return _decode_cancelled(params if params is not None else b"{}").requestId
    except DECODE_ERRORS:
        return None
