"""One MCP session over Streamable HTTP: a consumer that receives messages on event streams.

Every request of the client has a stream, which ends with its response. Server messages about a
request, and server requests while one is open, are sent on its stream, all others on the standing
stream (the client's GET). Ended streams are kept, within bounds, so that a client can resume them.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Final

import trio
from msgspec import UNSET

from bridges.http_streams import STANDING_STREAM, EventStream
from bridges.interfaces import Cancel
from bridges.mcp_connection import McpConnection
from bridges.mcp_protocol import CANCELLED, progress_token, reported_token
from bridges.shim_consumer import cancelled_id
from conductor.bridge_api import (
    INTERNAL_ERROR,
    Id,
    InFlightRequest,
    Message,
    Payload,
    ResponseCallback,
    encode_error,
    encode_id,
    error_pieces,
    notification_pieces,
    request_pieces,
    result_pieces,
)

__all__ = ["McpHttpSession"]

_KEPT_BYTES: Final = 8 * 1024 * 1024
_KEPT_STREAMS: Final = 64
"""Bounds on ended streams that are kept; the newest is kept regardless of its size."""


class McpHttpSession:
    """Consumer of an `McpConnection`: the agent's MCP client, over HTTP."""

    def __init__(self, id: str) -> None:
        self.id = id
        self.mcp_connection: McpConnection | None = None
        self.closed: Callable[[], object] = _nothing
        """Called when the MCP connection is closed."""
        self.standing = EventStream(STANDING_STREAM, self._stream_changed)
        self.streams: dict[str, EventStream] = {STANDING_STREAM: self.standing}
        self.calls: dict[InFlightRequest, EventStream] = {}
        """Open requests. Clients of an agent that share a session may use equal ids."""
        self._newest: dict[Id, InFlightRequest] = {}
        """The newest open request with an id."""
        self._call_of: dict[EventStream, InFlightRequest] = {}
        self._ended: dict[str, EventStream] = {}
        self._slow: set[EventStream] = set()
        self._read = trio.lowlevel.ParkingLot()
        self._room = trio.lowlevel.ParkingLot()
        self._sent: dict[int, ResponseCallback] = {}
        self._ids = itertools.count(1)
        self._stream_names = itertools.count(1)
        self._tokens: dict[bytes, InFlightRequest] = {}
        self._token_of: dict[InFlightRequest, bytes] = {}

    # -- messages of the agent ---------------------------------------------------------------------

    def ask(self, message: Message) -> EventStream:
        """Handle a request; returns its stream, which ends with the response."""
        stream = EventStream(f"{next(self._stream_names)}", self._stream_changed)
        self.streams[stream.name] = stream
        id: Id = message.id  # type: ignore[assignment]
        call = InFlightRequest(str(message.method), self, id)
        self.calls[call] = stream
        self._newest[id] = call
        self._call_of[stream] = call
        params = message.params if isinstance(message.params, bytes | memoryview) else None
        raw = None if not message.params else bytes(message.params)
        token = progress_token(raw)
        if token is not None:
            self._tokens[token] = call
            self._token_of[call] = token
        assert self.mcp_connection is not None
        self.mcp_connection.request(call, str(message.method), raw if params is None else params)
        return stream

    def take(self, message: Message) -> None:
        """Handle a notification or a response."""
        assert self.mcp_connection is not None
        raw = bytes(message.params) if message.params else None
        if message.method is not UNSET:
            if message.method == CANCELLED:
                self.withdraw(cancelled_id(raw))
            else:
                self.mcp_connection.notification(str(message.method), raw)
            return
        answered = self._sent.pop(message.id, None)  # type: ignore[arg-type]
        if answered is not None:
            answered(
                bytes(message.result) if message.result else None,
                bytes(message.error) if message.error else None,
            )

    def withdraw(self, id: Id) -> None:
        """Cancel the newest open request with this id."""
        call = self._newest.get(id)
        if call is not None:
            self._withdraw(call)

    def give_up(self, stream: EventStream) -> None:
        """Cancel the request of this stream."""
        call = self._call_of.get(stream)
        if call is not None:
            self._withdraw(call)

    def _withdraw(self, call: InFlightRequest) -> None:
        stream = self._closed(call)
        call.cancel()
        call.answered = True
        if stream is not None:
            stream.end()

    def _closed(self, call: InFlightRequest) -> EventStream | None:
        """Remove an open request; returns its stream."""
        stream = self.calls.pop(call, None)
        if stream is not None:
            del self._call_of[stream]
        if self._newest.get(call.source_id) is call:
            del self._newest[call.source_id]
        self._tokens.pop(self._token_of.pop(call, b""), None)
        return stream

    @property
    def is_read(self) -> bool:
        """Whether the client reads any stream."""
        return any(stream.readers for stream in self.streams.values())

    @property
    def open_requests(self) -> int:
        return len(self.calls)

    async def wait_room(self) -> None:
        """Wait while the queue toward the server is full."""
        while self.mcp_connection is not None and self.mcp_connection.crowded:
            self.mcp_connection.made_room = self._room.unpark_all
            await self._room.park()

    async def wait_read(self) -> None:
        """Wait while the client reads a stream too slowly."""
        while self._slow:
            await self._read.park()

    # -- Consumer ----------------------------------------------------------------------------------

    def respond(self, call: InFlightRequest, result: Payload | None, error: Payload | None) -> None:
        if call.answered:
            return
        call.answered = True
        stream = self._closed(call)
        if stream is not None:
            if result is not None:
                pieces = result_pieces(call.source_id, result)
            else:
                pieces = error_pieces(call.source_id, error or b"null")
            stream.put(b"".join(pieces), last=True)

    def request(self, method: str, params: Payload | None, answered: ResponseCallback) -> Cancel:
        id = next(self._ids)
        self._sent[id] = answered
        stream = self._stream_for(None)
        stream.put(b"".join(request_pieces(id, method, params)))

        def cancel() -> None:
            if self._sent.pop(id, None) is not None:
                gone = b'{"requestId":%b}' % encode_id(id)
                stream.put(b"".join(notification_pieces(CANCELLED, gone)))

        return cancel

    def notify(
        self, method: str, params: Payload | None, owner: InFlightRequest | None = None
    ) -> None:
        if owner is None:
            owner = self._tokens.get(reported_token(params) or b"")
        line = b"".join(notification_pieces(method, params))
        self._stream_for(owner, standing=owner is None).put(line)

    def close(self) -> None:
        gone = encode_error(INTERNAL_ERROR, "The MCP client is gone")
        for answered in list(self._sent.values()):
            answered(None, gone)
        self._sent.clear()
        for call in list(self.calls):
            self.respond(call, None, encode_error(INTERNAL_ERROR, "The MCP server is gone"))
        for stream in list(self.streams.values()):
            stream.end()
        self.closed()

    def _stream_changed(self, stream: EventStream) -> None:
        if stream.slow:
            self._slow.add(stream)
        elif stream in self._slow:
            self._slow.discard(stream)
            self._read.unpark_all()
        if stream.lost:
            self.streams.pop(stream.name, None)
            self.give_up(stream)
        elif stream.done and stream is not self.standing:
            self._keep(stream)

    def _keep(self, stream: EventStream) -> None:
        self._ended[stream.name] = stream
        size = sum(one.size for one in self._ended.values())
        for old in list(self._ended.values()):
            if len(self._ended) == 1 or (size <= _KEPT_BYTES and len(self._ended) <= _KEPT_STREAMS):
                break
            if not old.readers and old is not stream:
                size -= old.size
                del self._ended[old.name]
                self.streams.pop(old.name, None)

    def _stream_for(self, owner: InFlightRequest | None, *, standing: bool = False) -> EventStream:
        """Return the stream of request `owner`; for a server request, that of the newest open
        one."""
        if owner is not None:
            return self.calls.get(owner, self.standing)
        if self.calls and not standing:
            return next(reversed(self.calls.values()))
        return self.standing


def _nothing() -> None:
    pass
