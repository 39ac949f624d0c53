"""One end of a connection, for whoever is no hop: a client, an MCP client, a fake in a test.

Requests are sent and waited for; what the peer sends goes to handlers, by method. Answers and
notifications are dealt with in the order in which they come, as they come. So are requests whose
handler is a plain function; one that is `async` runs in a task of its own, so that a question to a
person holds nothing up, and is cancelled when the peer withdraws its request.
"""

from __future__ import annotations

import inspect
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any, TypeAlias, TypeVar

import attrs
import trio

from conductor.connection.calls import Call
from conductor.connection.connection import Connection, Receiver
from conductor.connection.pump import Flusher, pump, write_backlog
from conductor.connection.runs import Run
from conductor.errors import ConnectionClosed, RequestCancelled, RequestError
from conductor.frames import Malformed
from conductor.limits import Limits
from conductor.log import get_logger
from conductor.messages import (
    CANCEL,
    INTERNAL_ERROR,
    INVALID_PARAMS,
    METHOD_NOT_FOUND,
    Payload,
    encode_error,
    error_of,
    notification_pieces,
    request_error,
    request_pieces,
)
from conductor.proxy.codec import decode_params, encode
from conductor.transport.base import Transport

__all__ = ["Endpoint", "Handler", "background"]

log = get_logger(component="endpoint")

Handler: TypeAlias = Callable[[Any], Any]
"""Takes the decoded params; returns the result, or a coroutine of it, or raises `RequestError`."""

Self = TypeVar("Self", bound="Endpoint")


@asynccontextmanager
async def background() -> AsyncIterator[trio.Nursery]:
    """A nursery whose tasks end with its block; an exception of the block comes out as it is."""
    failure: BaseException | None = None
    async with trio.open_nursery() as nursery:
        try:
            yield nursery
        except (trio.Cancelled, GeneratorExit):
            raise
        except BaseException as exc:
            failure = exc
        nursery.cancel_scope.cancel()
    if failure is not None:
        raise failure


@attrs.define(eq=False)
class _Waiter:
    arrived: trio.Event = attrs.field(factory=trio.Event)
    answered: Callable[[Any], None] | None = None
    result: bytes | None = None
    error: bytes | None = None


@attrs.define(eq=False)
class Endpoint:
    """A JSON-RPC peer at one end of `transport`.

    An exception of a handler that is no `RequestError` is a mistake of ours: it comes out of
    `open()`.
    """

    transport: Transport
    handlers: dict[str, Handler] = attrs.field(factory=dict)
    """By method, for requests and notifications; requests without one are answered -32601."""
    limits: Limits = attrs.field(factory=Limits)
    cancel_method: str = CANCEL
    tap: Receiver | None = None
    """Sees everything that the peer sends, before it is dealt with."""
    ended: trio.Event = attrs.field(factory=trio.Event, init=False)
    """Set when the peer has ended its stream, or we have given ours up."""
    connection: Connection = attrs.field(init=False)
    _flusher: Flusher = attrs.field(factory=Flusher, init=False)
    _waiting: dict[Call, _Waiter] = attrs.field(factory=dict, init=False)
    _running: dict[Call, trio.CancelScope] = attrs.field(factory=dict, init=False)
    _settled: trio.lowlevel.ParkingLot = attrs.field(factory=trio.lowlevel.ParkingLot, init=False)
    _nursery: trio.Nursery = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self.connection = Connection(self.transport, self, self._flusher, limits=self.limits)

    @asynccontextmanager
    async def open(self: Self) -> AsyncIterator[Self]:
        """Talk for as long as the block lasts, then give the transport up."""
        try:
            async with background() as nursery:
                self._nursery = nursery
                nursery.start_soon(self._flusher.run)
                nursery.start_soon(write_backlog, self.connection, self._flusher)
                nursery.start_soon(self._read)
                yield self
        finally:
            self._lost()
            self.transport.close()

    # -- what we send ------------------------------------------------------------------------------

    async def request(
        self, method: str, params: Any = None, *, answered: Callable[[Any], None] | None = None
    ) -> Any:
        """Send a request and return its result.

        `answered` is called with the result as it arrives, before anything that comes after it is
        dealt with; the caller itself goes on a little later.

        Raises `RequestError` when it is answered with an error, `ConnectionClosed` when it never
        will be answered. If the caller is cancelled, so is the request.
        """
        if self.ended.is_set() or self.connection.closed:
            raise ConnectionClosed(f"{method}: the peer is gone")
        call = Call(method, self)
        waiter = self._waiting[call] = _Waiter(answered=answered)
        id = self.connection.open(call)
        self.connection.write(request_pieces(id, method, encode(params)))
        try:
            await waiter.arrived.wait()
        except trio.Cancelled:
            if self.connection.sent.get(id) is call:
                self.notify(self.cancel_method, {"requestId": id})
            raise
        finally:
            self._waiting.pop(call, None)
        if waiter.error is not None:
            raise request_error(waiter.error)
        if waiter.result is None:
            raise ConnectionClosed(f"{method}: the peer went without an answer")
        return _decoded_result(waiter.result)

    def notify(self, method: str, params: Any = None) -> None:
        """Send a notification; it is queued behind what was sent before."""
        self.connection.write(notification_pieces(method, encode(params)))

    def send_line(self, line: bytes) -> None:
        """Send bytes as a line of their own, whatever they are."""
        self.connection.write((line, b"\n"))

    def close(self) -> None:
        """Say that nothing more will come, once everything is written."""
        self.connection.close_writing()

    def start_soon(self, function: Callable[..., Awaitable[Any]], *args: Any) -> None:
        """Run `await function(*args)` until it ends or this end is given up."""
        self._nursery.start_soon(function, *args)

    async def wait_idle(self) -> None:
        """Wait until no request of the peer is being worked on."""
        while self._running:
            await self._settled.park()

    # -- Receiver: what the peer sent --------------------------------------------------------------

    def on_request(self, call: Call, method: str, params: Payload | None) -> None:
        if self.tap is not None:
            self.tap.on_request(call, method, params)
        handler = self.handlers.get(method)
        if handler is None:
            error = encode_error(METHOD_NOT_FOUND, "Method not found", method)
            self.connection.respond(call, None, error)
            return
        try:
            value = _decoded(params)
        except ValueError as exc:  # JSON that passes by may be nested deeper than can be decoded
            error = encode_error(INVALID_PARAMS, f"Invalid params: {exc}")
            self.connection.respond(call, None, error)
            return
        try:
            result = handler(value)
        except RequestError as exc:
            self.connection.respond(call, None, error_of(exc))
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
            log.warning("a notification cannot be decoded", method=method, error=str(exc))
            return
        if method == CANCEL:
            self._cancelled_by_peer(value)
        if handler is None:
            return
        result = handler(value)
        if inspect.isawaitable(result):
            self._nursery.start_soon(_finish, result)

    def on_run(self, run: Run) -> None:
        for each in run.params:
            self.on_notification(run.method, each)

    def on_answer(self, call: Call, result: Payload | None, error: Payload | None) -> None:
        if self.tap is not None:
            self.tap.on_answer(call, result, error)
        waiter = self._waiting.get(call)
        if waiter is not None:
            waiter.result = None if result is None else bytes(result)
            waiter.error = None if error is None else bytes(error)
            waiter.arrived.set()
            if waiter.answered is not None and waiter.result is not None:
                try:
                    value = _decoded_result(waiter.result)
                except ValueError:
                    return  # whoever waits decodes it too, and gets the error
                waiter.answered(value)

    def on_malformed(self, frame: Malformed, call: Call | None) -> None:
        if self.tap is not None:
            self.tap.on_malformed(frame, call)
        if call is not None:
            error = encode_error(INTERNAL_ERROR, f"The answer is malformed: {frame.reason}")
            self.on_answer(call, None, error)

    # -- CallSource --------------------------------------------------------------------------------

    def respond(self, call: Call, result: Payload | None, error: Payload | None) -> None:
        """Answers arrive by `on_answer`."""

    # ----------------------------------------------------------------------------------------------

    async def _read(self) -> None:
        await pump(self.connection, self._flusher, None)
        self._lost()

    def _lost(self) -> None:
        self.ended.set()
        for waiter in self._waiting.values():
            waiter.arrived.set()

    async def _answer_later(
        self, call: Call, scope: trio.CancelScope, coroutine: Awaitable[Any]
    ) -> None:
        try:
            with scope:
                self._answer(call, await coroutine)
        except RequestError as exc:
            self.connection.respond(call, None, error_of(exc))
        finally:
            del self._running[call]
            self._settled.unpark_all()
        if scope.cancelled_caught:
            self.connection.respond(call, None, error_of(RequestCancelled()))

    def _answer(self, call: Call, result: Any) -> None:
        self.connection.respond(call, encode(result) or b"null", None)

    def _cancelled_by_peer(self, params: Any) -> None:
        id = params.get("requestId") if isinstance(params, dict) else None
        if id is None or isinstance(id, str | int):
            call = self.connection.received.get(id)
            if call is not None and call in self._running:
                self._running[call].cancel()


def _decoded(params: Payload | None) -> Any:
    return decode_params(None if params is None else bytes(params), Any)


def _decoded_result(result: bytes) -> Any:
    return None if result == b"null" else decode_params(result, Any)


async def _finish(coroutine: Awaitable[Any]) -> None:
    await coroutine
