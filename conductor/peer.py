"""One end of a JSON-RPC connection: an ACP client, an MCP client or a fake in a test.

`request` sends a request and waits for its response. Incoming messages are dispatched to handlers
by method, in arrival order: responses, notifications, and requests with a synchronous handler. An
`async` handler runs in its own task, so that a question to the user blocks nothing, and is
cancelled by `$/cancel_request`.
"""

from __future__ import annotations

import inspect
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any, Final, TypeAlias, TypeVar

import attrs
import trio

from conductor.background_tasks import background_tasks
from conductor.errors import ConnectionClosed, RequestCancelled, RequestError
from conductor.jsonrpc.awaited_response import AwaitedResponse
from conductor.jsonrpc.codec import Malformed
from conductor.jsonrpc.connection import Connection, Receiver
from conductor.jsonrpc.in_flight import InFlightRequest
from conductor.jsonrpc.messages import (
    CANCEL,
    INTERNAL_ERROR,
    INVALID_PARAMS,
    METHOD_NOT_FOUND,
    Payload,
    encode_error,
    exception_to_error,
    notification_pieces,
    request_pieces,
)
from conductor.jsonrpc.notification_batch import NotificationBatch
from conductor.limits import Limits
from conductor.log import get_logger
from conductor.proxy.conversion import decode_params, encode
from conductor.transport.base import Transport
from conductor.transport.io_loop import Flusher, ReadGate, read_loop, write_loop

__all__ = ["JsonRpcPeer", "MessageHandler"]

log: Final = get_logger(component="endpoint")

MessageHandler: TypeAlias = Callable[[Any], Any]
"""Takes the decoded params; returns the result, or a coroutine of it, or raises `RequestError`."""

Self = TypeVar("Self", bound="JsonRpcPeer")


class _PeerResponse(AwaitedResponse):
    answered: Callable[[Any], None] | None = None


@attrs.define(eq=False)
class JsonRpcPeer:
    """A JSON-RPC peer at one end of `transport`.

    An exception of a handler other than `RequestError` propagates out of `open()`.
    """

    transport: Transport
    handlers: dict[str, MessageHandler] = attrs.field(factory=dict)
    """By method, for requests and notifications; requests without a handler get -32601."""
    limits: Limits = attrs.field(factory=Limits)
    cancel_method: str = CANCEL
    tap: Receiver | None = None
    """Receives every incoming message before it is dispatched."""
    unread: Callable[[], int] = lambda: 0
    """Returns the bytes that handlers have taken and not worked off. Above the high watermark
    nothing is read; `made_room` signals that it has decreased."""
    ended: trio.Event = attrs.field(factory=trio.Event, init=False)
    """Set at the end of the incoming stream, or when `open()` ends."""
    connection: Connection = attrs.field(init=False)
    _flusher: Flusher = attrs.field(factory=Flusher, init=False)
    _pending: dict[InFlightRequest, _PeerResponse] = attrs.field(factory=dict, init=False)
    _running: dict[InFlightRequest, trio.CancelScope] = attrs.field(factory=dict, init=False)
    _request_done: trio.lowlevel.ParkingLot = attrs.field(
        factory=trio.lowlevel.ParkingLot, init=False
    )
    _nursery: trio.Nursery = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self.connection = Connection(self.transport, self, self._flusher, limits=self.limits)

    @asynccontextmanager
    async def open(self: Self) -> AsyncIterator[Self]:
        """Run the connection until the end of the block, then close the transport."""
        try:
            async with background_tasks() as nursery:
                self._nursery = nursery
                nursery.start_soon(write_loop, self.connection, self._flusher)
                nursery.start_soon(self._read)
                yield self
        finally:
            self._on_closed()
            self.transport.close()

    # -- outgoing ----------------------------------------------------------------------------------

    async def request(
        self, method: str, params: Any = None, *, answered: Callable[[Any], None] | None = None
    ) -> Any:
        """Send a request and return its result.

        `answered` is called with the result on arrival, before any later message is dispatched;
        the waiting caller resumes afterwards.

        Raises `RequestError` for an error response, `ConnectionClosed` if the stream ends first.
        If the caller is cancelled, `cancel_method` is sent for the request.
        """
        if self.ended.is_set() or self.connection.closed:
            raise ConnectionClosed(f"{method}: the peer is gone")
        call = InFlightRequest(method, self)
        pending = self._pending[call] = _PeerResponse(answered=answered)
        id = self.connection.open(call)
        self.connection.write(request_pieces(id, method, encode(params)))
        try:
            result = await pending.wait()
        except trio.Cancelled:
            if self.connection.sent.get(id) is call:
                self.notify(self.cancel_method, {"requestId": id})
            raise
        finally:
            self._pending.pop(call, None)
        return _decoded_result(result)

    def notify(self, method: str, params: Any = None) -> None:
        """Send a notification, after everything sent before."""
        self.connection.write(notification_pieces(method, encode(params)))

    def send_line(self, line: bytes) -> None:
        """Send raw bytes as one line, without a check."""
        self.connection.write((line, b"\n"))

    def close(self) -> None:
        """Close the outgoing stream after everything is written."""
        self.connection.close_writing()

    def start_soon(self, function: Callable[..., Awaitable[Any]], *args: Any) -> None:
        """Run `function(*args)` in a task until it ends or `open()` does."""
        self._nursery.start_soon(function, *args)

    def made_room(self) -> None:
        """Signal that `unread()` has decreased: a paused reader checks it again."""
        self._flusher.made_room()

    async def wait_idle(self) -> None:
        """Wait until no `async` request handler is running."""
        while self._running:
            await self._request_done.park()

    # -- Receiver: incoming ------------------------------------------------------------------------

    def on_request(self, call: InFlightRequest, method: str, params: Payload | None) -> None:
        if self.tap is not None:
            self.tap.on_request(call, method, params)
        handler = self.handlers.get(method)
        if handler is None:
            error = encode_error(METHOD_NOT_FOUND, "Method not found", method)
            self.connection.respond(call, None, error)
            return
        try:
            value = _decoded(params)
        except ValueError as exc:  # forwarded JSON may be nested deeper than the decoder allows
            error = encode_error(INVALID_PARAMS, f"Invalid params: {exc}")
            self.connection.respond(call, None, error)
            return
        try:
            result = handler(value)
        except RequestError as exc:
            self.connection.respond(call, None, exception_to_error(exc))
            return
        if inspect.isawaitable(result):
            self._running[call] = scope = trio.CancelScope()
            self._nursery.start_soon(self._answer_later, call, scope, result)
        else:
            self._answer(call, result)

    def on_notification(self, method: str, params: Payload | None) -> None:
        if self.tap is not None:
            self.tap.on_notification(method, params)
        handler = self.handlers.get(method)
        if method != CANCEL and handler is None:
            return
        try:
            value = _decoded(params)
        except ValueError as exc:
            log.warning("notification not decodable", method=method, error=str(exc))
            return
        if method == CANCEL:
            self._cancel_by_peer(value)
        if handler is None:
            return
        with suppress(RequestError):  # the handler is one for requests
            result = handler(value)
            if inspect.isawaitable(result):
                self._nursery.start_soon(_await, result)

    def on_notifications(self, notifications: NotificationBatch) -> None:
        for each in notifications.params:
            self.on_notification(notifications.method, each)

    def on_response(
        self, call: InFlightRequest, result: Payload | None, error: Payload | None
    ) -> None:
        if self.tap is not None:
            self.tap.on_response(call, result, error)
        pending = self._pending.get(call)
        if pending is not None:
            pending.set(result, error)
            if pending.answered is not None and pending.result is not None:
                try:
                    value = _decoded_result(pending.result)
                except ValueError:
                    return  # the waiting caller decodes it too, and gets the error
                pending.answered(value)

    def on_malformed(self, frame: Malformed, call: InFlightRequest | None) -> None:
        if self.tap is not None:
            self.tap.on_malformed(frame, call)
        if call is not None:
            error = encode_error(INTERNAL_ERROR, f"The answer is malformed: {frame.reason}")
            self.on_response(call, None, error)

    # -- CallSource --------------------------------------------------------------------------------

    def respond(self, call: InFlightRequest, result: Payload | None, error: Payload | None) -> None:
        """Not used: responses to this peer's requests arrive by `on_response`."""

    # ----------------------------------------------------------------------------------------------

    async def _read(self) -> None:
        read_gate = ReadGate(self._flusher, lambda: self.unread())
        await read_loop(self.connection, self._flusher, read_gate)
        self._on_closed()

    def _on_closed(self) -> None:
        self.ended.set()
        for call, pending in self._pending.items():
            pending.fail(ConnectionClosed(f"{call.method}: the peer left without an answer"))

    async def _answer_later(
        self, call: InFlightRequest, scope: trio.CancelScope, coroutine: Awaitable[Any]
    ) -> None:
        try:
            with scope:
                self._answer(call, await coroutine)
        except RequestError as exc:
            self.connection.respond(call, None, exception_to_error(exc))
        finally:
            del self._running[call]
            self._request_done.unpark_all()
        if scope.cancelled_caught:
            self.connection.respond(call, None, exception_to_error(RequestCancelled()))

    def _answer(self, call: InFlightRequest, result: Any) -> None:
        self.connection.respond(call, encode(result) or b"null", None)

    def _cancel_by_peer(self, params: Any) -> None:
        id = params.get("requestId") if isinstance(params, dict) else None
        if id is None or isinstance(id, str | int):
            call = self.connection.received.get(id)
            if call is not None and call in self._running:
                self._running[call].cancel()


def _decoded(params: Payload | None) -> Any:
    return decode_params(None if params is None else bytes(params), Any)


def _decoded_result(result: bytes) -> Any:
    return None if result == b"null" else decode_params(result, Any)


async def _await(coroutine: Awaitable[Any]) -> None:
    with suppress(RequestError):
        await coroutine
