"""The agent's side of a shim: JSON-RPC lines on a socket, one MCP connection."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final

import attrs
import msgspec
import trio

from bridges.door import SocketTransport
from bridges.link import CANCELLED, Cancel, Link
from conductor.bridging import (
    HIGH_WATER,
    INTERNAL_ERROR,
    UNUSUAL,
    Answered,
    Call,
    Connection,
    Flusher,
    Id,
    Limits,
    Malformed,
    Payload,
    Run,
    encode_error,
    encode_id,
    notification_pieces,
    request_pieces,
    write_backlog,
)
from conductor.log import get_logger

__all__ = ["ShimConsumer", "cancelled_id"]

log = get_logger(component="mcp-bridge")


class ShimConsumer:
    """The consumer of a link, and the receiver of a connection."""

    def __init__(self, transport: SocketTransport, flusher: Flusher, limit: int) -> None:
        self.transport = transport
        self.connection = Connection(
            transport, self, flusher, answers_malformed=True, limits=Limits(max_message_bytes=limit)
        )
        self.link: Link | None = None
        self.ended = trio.Event()
        """Set when there is nothing more to say."""

    @property
    def crowded(self) -> bool:
        """Whether the agent does not read what it was sent."""
        return self.connection.outbox.size > HIGH_WATER

    async def serve(
        self,
        flusher: Flusher,
        wait_room: Callable[[], Awaitable[None]],
        provide: Callable[[trio.Nursery], Awaitable[None]],
    ) -> None:
        """One shim, from its token to its end. `provide` opens the link."""
        assert self.link is not None
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(write_backlog, self.connection, flusher)
                nursery.start_soon(self._end, flusher, nursery.cancel_scope)
                await provide(nursery)
                await self._read(flusher, wait_room)
                nursery.cancel_scope.cancel()
        finally:
            self.link.close()
            self.transport.close()
            flusher.made_room()

    async def _read(self, flusher: Flusher, wait_room: Callable[[], Awaitable[None]]) -> None:
        """Route what the agent's MCP client says, not faster than it and the others read.

        Nor faster than the server takes it: before `mcp/connect` is answered it takes nothing.
        """
        assert self.link is not None
        connection = self.connection
        self.link.made_room = flusher.made_room
        while chunk := await self.transport.receive():
            if self.ended.is_set():
                continue
            if flusher.feed(connection, chunk):
                await flusher.feed_rest(connection)
            while (self.crowded or self.link.crowded) and not connection.closed:
                if self.transport.hung_up():
                    break  # it is read to its end: that it is gone must be known
                with trio.move_on_after(_LOOK_AGAIN):
                    await flusher.wait_room()
            await wait_room()

    async def _end(self, flusher: Flusher, scope: trio.CancelScope) -> None:
        """When the bridge ends it, a client that reads still gets what was said to it."""
        await self.ended.wait()
        flusher.made_room()
        await trio.sleep(_LAST_BYTES)
        scope.cancel()

    # -- Receiver: what the agent sends ------------------------------------------------------------

    def on_request(self, call: Call, method: str, params: Payload | None) -> None:
        assert self.link is not None
        self.link.request(call, method, params)

    def on_notification(self, method: str, params: Payload | None) -> None:
        assert self.link is not None
        if method != CANCELLED:
            self.link.notification(method, params)
            return
        call = self.connection.received.pop(cancelled_id(params), None)
        if call is not None:
            call.cancel()
            call.answered = True  # a cancelled request gets no answer (MCP, cancellation)

    def on_run(self, run: Run) -> None:
        for each in run.params:
            self.on_notification(run.method, each)

    def on_answer(self, call: Call, result: Payload | None, error: Payload | None) -> None:
        call.source.respond(call, result, error)

    def on_malformed(self, frame: Malformed, call: Call | None) -> None:
        log.warning("not a message", sender="an MCP client", reason=frame.reason)
        if call is not None:
            error = encode_error(INTERNAL_ERROR, "The answer to this request was malformed")
            call.source.respond(call, None, error)

    # -- Consumer ----------------------------------------------------------------------------------

    def respond(self, call: Call, result: Payload | None, error: Payload | None) -> None:
        self.connection.respond(call, result, error)

    def request(self, method: str, params: Payload | None, answered: Answered) -> Cancel:
        connection = self.connection
        call = Call(method, _Asker(answered))
        id = connection.open(call)
        connection.write(request_pieces(id, method, params))

        def cancel() -> None:
            if connection.sent.pop(id, None) is not None:
                gone = b'{"requestId":%b}' % encode_id(id)
                connection.write(notification_pieces(CANCELLED, gone))

        return cancel

    def notify(self, method: str, params: Payload | None, owner: Call | None = None) -> None:
        self.connection.write(notification_pieces(method, params))

    def close(self) -> None:
        unanswered = list(self.connection.sent.values())
        self.connection.sent.clear()
        for call in unanswered:
            call.source.respond(call, None, _GONE)
        self.connection.close_writing()
        self.ended.set()


@attrs.define(eq=False)
class _Asker:
    """Where the answer of the agent's MCP client goes."""

    _answered: Answered

    def respond(self, call: Call, result: Payload | None, error: Payload | None) -> None:
        self._answered(
            None if result is None else bytes(result), None if error is None else bytes(error)
        )


class _Cancelled(msgspec.Struct):
    requestId: int | str | None = None


_LAST_BYTES: Final = 5.0
"""Seconds that the MCP client of a released declaration has to read what is left for it."""
_LOOK_AGAIN: Final = 1.0
"""Seconds after which a shim that is not read is looked at: whether it is still there."""
_GONE = encode_error(INTERNAL_ERROR, "The MCP client is gone")
_decode_cancelled = msgspec.json.Decoder(_Cancelled).decode


def cancelled_id(params: Payload | None) -> Id:
    try:
        return _decode_cancelled(params if params is not None else b"{}").requestId
    except UNUSUAL:
        return None
