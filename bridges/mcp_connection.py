"""One MCP connection across the bridge, between a consumer and a provider.

Consumer: the agent's MCP client, behind a shim or over ACP. Provider: access to the MCP server,
over ACP or HTTP. A message is handed on synchronously, which keeps the order. A `ConnectionMode`
handles the messages: `revisions.Handshake` at first, then one that forwards them, or a translator
if the two ends speak different MCP revisions. While the provider is being reached and during the
handshake, messages of the consumer are queued.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable
from typing import Any, Final, Literal, Protocol, TypeAlias

import attrs
import trio

from bridges.bindings import Binding
from conductor.bridge_api import (
    INTERNAL_ERROR,
    INVALID_REQUEST,
    InFlightRequest,
    Payload,
    ResponseCallback,
    encode_error,
    error_to_exception,
)
from conductor.json_values import NestedTooDeeply
from conductor.log import get_logger
from conductor.proxy import RequestError

__all__ = [
    "CANCELLED",
    "Cancel",
    "ConnectionMode",
    "Consumer",
    "DeclaredServer",
    "McpConnection",
    "Provider",
]

CANCELLED: Final = "notifications/cancelled"
Cancel: TypeAlias = Callable[[], None]
StartSoon: TypeAlias = Callable[[Callable[[], Awaitable[None]]], None]

_MAX_QUEUED_BYTES: Final = 256 * 1024
"""Queued bytes, here and in the provider, above which the consumer is not read."""
_MESSAGE_OVERHEAD: Final = 500
"""Estimated size of a queued message without its params, in bytes."""

log = get_logger(component="mcp-bridge")


@attrs.define(eq=False)
class DeclaredServer:
    """State of one declared server, shared by its connections."""

    id: str
    name: str
    declaration: dict[str, Any]
    session: str | None = None
    """Id of the ACP session that declares it, as soon as it is known."""
    binding: Binding | None = None
    """The binding that a server over ACP understands, once it is known."""
    revision: Literal["modern", "legacy", None] = None
    """`modern`: only 2026-07-28 (the stateless binding); `legacy`: leaves `server/discover` without
    an answer; `None`: each connection finds out."""
    active: int = 0
    """Stateless requests in flight."""
    waiting: dict[Any, None] = attrs.field(factory=dict)
    """Those that wait until fewer are in flight, in order. A cancelled one leaves at once."""


class Consumer(Protocol):
    """Client side of an MCP connection: a shim, or an agent that takes MCP over ACP."""

    def respond(self, call: InFlightRequest, result: Payload | None, error: Payload | None) -> None:
        """Send the response to a request of the consumer."""

    def request(self, method: str, params: Payload | None, answered: ResponseCallback) -> Cancel:
        """Send a request of the server (sampling, elicitation, roots); returns a function that
        cancels it."""

    def notify(
        self, method: str, params: Payload | None, owner: InFlightRequest | None = None
    ) -> None:
        """Send a notification; `owner` is the consumer's request that it is about, if known."""

    def close(self) -> None:
        """The connection is closed: no more messages follow."""


class Provider(Protocol):
    """Access to an MCP server: over ACP in one of its bindings, or over HTTP."""

    server: DeclaredServer

    @property
    def waiting_bytes(self) -> int:
        """Bytes of queued requests; when they decrease, the provider calls `made_room` of its
        connection."""

    def request(
        self, call: InFlightRequest, method: str, params: Payload | None, answered: ResponseCallback
    ) -> Cancel:
        """Send a request to the server for the consumer's `call`; returns a function that cancels
        it."""

    def notify(self, method: str, params: Payload | None) -> None:
        """Send a notification to the server."""

    def close(self) -> None:
        """Release the server: the connection is closed."""


class ConnectionMode:
    """Handles the messages of an open connection. This base class forwards them."""

    def __init__(self, connection: McpConnection) -> None:
        self.connection = connection

    def request(self, call: InFlightRequest, method: str, params: Payload | None) -> None:
        """Handle a request of the consumer."""
        self.connection.ask(call, method, params, lambda r, e: self.connection.reply(call, r, e))

    def notification(self, method: str, params: Payload | None) -> None:
        """Handle a notification of the consumer."""
        self.connection.provider.notify(method, params)

    def server_request(
        self, method: str, params: Payload | None, answered: ResponseCallback
    ) -> Cancel:
        """Handle a request of the server; returns a function that cancels it."""
        return self.connection.consumer.request(method, params, answered)

    def server_notification(
        self, method: str, params: Payload | None, owner: InFlightRequest | None
    ) -> None:
        """Handle a notification of the server."""
        self.connection.consumer.notify(method, params, owner)

    def closed(self) -> None:
        """The connection is closed."""


class McpConnection:
    """An MCP connection between a consumer and a provider.

    `begin` is called when the provider is reached, and returns the first mode; `refused` is called
    with the raw error if it cannot be reached. `start_soon` runs a task. An exception of a mode
    over a message (nested too deeply, or invalid MCP) fails only that message: a request is
    answered with an error, a notification is dropped."""

    def __init__(
        self,
        consumer: Consumer,
        begin: Callable[[McpConnection], ConnectionMode],
        start_soon: StartSoon,
        refused: Callable[[bytes], None] | None = None,
    ) -> None:
        self.consumer = consumer
        self.closed = False
        self.made_room: Callable[[], object] = _nothing
        """Called when queued messages have been sent."""
        self.withdraw_connect: Cancel = _nothing
        """Cancels the request by which the provider is being reached."""
        self.on_start: Callable[[bytes | None], object] | None = None
        """Called once: when the server has answered, or with the raw error that it did not."""
        self.mode: ConnectionMode | None = None
        self._begin = begin
        self._start_soon = start_soon
        self._on_refused = refused
        self._provider: Provider | None = None
        self._paused = True
        self._refused: bytes | None = None
        self._waiting: deque[tuple[InFlightRequest | None, str, bytes | None]] = deque()
        self._waiting_bytes = 0
        self._asked: dict[InFlightRequest, Cancel] = {}

    @property
    def provider(self) -> Provider:
        assert self._provider is not None
        return self._provider

    @property
    def crowded(self) -> bool:
        """Whether the queue toward the server is full, so that the consumer must not be read."""
        waiting = self._waiting_bytes
        if self._provider is not None:
            waiting += self._provider.waiting_bytes
        return waiting > _MAX_QUEUED_BYTES

    # -- opening and closing -----------------------------------------------------------------------

    def open(self, provider: Provider) -> None:
        """Take the provider and send the queued messages."""
        self._provider = provider
        if self.closed or self._refused is not None:
            provider.close()
            return
        self.resume(self._begin(self))

    def refuse(self, error: bytes) -> None:
        """Answer open requests and all later ones with `error`: the server cannot be reached, or
        does not start."""
        self._refused = error
        self._report_start(error)
        if self._on_refused is not None:
            self._on_refused(error)
        asked, self._asked = self._asked, {}
        for call, cancel in asked.items():
            self.consumer.respond(call, None, error)
            cancel()
        self.resume()
        if self._provider is not None:
            self._provider.close()
        else:
            self.withdraw_connect()

    def pause(self) -> None:
        """Queue the consumer's messages until `resume`."""
        self._paused = True

    def resume(self, mode: ConnectionMode | None = None) -> None:
        """Send the queued messages of the consumer, in `mode` if given."""
        if mode is not None:
            self.mode = mode
        self._paused = False
        while self._waiting and not self._paused:
            call, method, params = self._waiting.popleft()
            self._waiting_bytes -= _size(params)
            if call is None:
                self.notification(method, params)
            elif not call.answered:
                self.request(call, method, params)
        self.made_room()

    def close(self) -> None:
        """Close both ends and cancel all open requests."""
        if self.closed:
            return
        self.closed = True
        if self.mode is not None:
            self.mode.closed()
        for cancel in list(self._asked.values()):
            cancel()
        self._asked.clear()
        self._waiting.clear()
        self._waiting_bytes = 0
        self.made_room()
        if self._provider is not None:
            self._provider.close()
        else:
            self.withdraw_connect()
        self.consumer.close()

    # -- from the consumer -------------------------------------------------------------------------

    def request(self, call: InFlightRequest, method: str, params: Payload | None) -> None:
        """Answer a request, queue it, or give it to the mode."""
        call.target = self
        if self._refused is not None:
            self.consumer.respond(call, None, self._refused)
        elif self._paused:
            self._wait(call, method, params)
        else:
            assert self.mode is not None
            self._contain(call, self.mode.request, call, method, params)

    def notification(self, method: str, params: Payload | None) -> None:
        if self._refused is not None:
            return
        if self._paused:
            self._wait(None, method, params)
        else:
            assert self.mode is not None
            self._contain(None, self.mode.notification, method, params)

    def _wait(self, call: InFlightRequest | None, method: str, params: Payload | None) -> None:
        kept = None if params is None else bytes(params)
        self._waiting.append((call, method, kept))
        self._waiting_bytes += _size(kept)

    def cancel(self, call: InFlightRequest) -> None:
        """Cancel a request of the consumer (`RequestTarget`)."""
        if cancel := self._asked.get(call):
            cancel()

    # -- from the provider -------------------------------------------------------------------------

    def server_request(
        self, method: str, params: Payload | None, answered: ResponseCallback
    ) -> Cancel:
        if self.closed or self.mode is None:
            answered(None, encode_error(INTERNAL_ERROR, "The MCP connection is closed"))
            return _nothing
        try:
            return self.mode.server_request(method, params, answered)
        except Exception as exc:  # see `_contain`
            answered(None, _unusable_message_error(exc))
            return _nothing

    def server_notification(
        self, method: str, params: Payload | None, owner: InFlightRequest | None = None
    ) -> None:
        if not self.closed and self.mode is not None:
            self._contain(None, self.mode.server_notification, method, params, owner)

    def _contain(
        self, call: InFlightRequest | None, function: Callable[..., None], *args: Any
    ) -> None:
        """Call `function` with a message; an exception is logged and answers `call` with an error.

        Modes decode messages of arbitrary peers: which exceptions they raise is unknown, and each
        concerns this message only.
        """
        try:
            function(*args)
        except Exception as exc:
            self._fail(call, exc)

    def _fail(self, call: InFlightRequest | None, exc: Exception) -> None:
        if isinstance(exc, RequestError):
            error = encode_error(exc.code, exc.message, exc.data)
        else:
            log.warning("MCP message failed", error=f"{type(exc).__name__}: {exc}")
            error = _unusable_message_error(exc)
        if call is not None and not self.closed:
            self.reply(call, None, error)

    # -- for modes ---------------------------------------------------------------------------------

    def ask(
        self, call: InFlightRequest, method: str, params: Payload | None, answered: ResponseCallback
    ) -> None:
        """Send a request to the provider for `call`; `answered` gets the response."""

        def settled(result: bytes | None, error: bytes | None) -> None:
            self._asked.pop(call, None)
            if not self.closed:
                self._contain(call, answered, result, error)

        cancel = self.provider.request(call, method, params, settled)
        if not call.answered:
            self._asked[call] = cancel
        if call.cancelled:
            cancel()

    def start(
        self, call: InFlightRequest, function: Callable[..., Awaitable[bytes | None]], *args: Any
    ) -> None:
        """Answer `call` with the raw result of an async function, or with its error; `None`: the
        function has answered it. A cancellation of the request cancels the function."""
        scope = trio.CancelScope()
        self._asked[call] = scope.cancel

        async def run() -> None:
            with scope:
                try:
                    result = await function(*args)
                except Exception as exc:
                    self._fail(call, exc)
                else:
                    if result is not None and not self.closed:
                        self.reply(call, result, None)

        self._start_soon(run)
        if call.cancelled:
            scope.cancel()

    def send_own(self, method: str, params: Payload) -> Cancel:
        """Send a request of the bridge to the provider; its response is ignored. Returns a function
        that cancels it."""
        own = InFlightRequest(method, _NoOriginator())
        return self.provider.request(own, method, params, lambda result, error: None)

    async def fetch(self, call: InFlightRequest, method: str, params: Payload | None) -> bytes:
        """Send a request to the provider for `call`, and wait for its result. Raises
        `RequestError`."""
        return await _response(lambda done: self.provider.request(call, method, params, done))

    async def ask_consumer(self, method: str, params: Payload | None) -> bytes:
        """Send a request to the consumer, and wait for its result. Raises `RequestError`."""
        return await _response(lambda done: self.consumer.request(method, params, done))

    def reply(self, call: InFlightRequest, result: Payload | None, error: Payload | None) -> None:
        self._asked.pop(call, None)
        if self.on_start is not None and (result is not None or call.method == "initialize"):
            self._report_start(None if result is not None else bytes(error or b"null"))
        self.consumer.respond(call, result, error)

    def _report_start(self, error: bytes | None) -> None:
        on_start, self.on_start = self.on_start, None
        if on_start is not None:
            on_start(error)


class _NoOriginator:
    """Originator of the bridge's own requests, whose responses go nowhere."""

    def respond(self, call: InFlightRequest, result: Payload | None, error: Payload | None) -> None:
        raise AssertionError("a request of the bridge itself has no originator")


async def _response(send: Callable[[ResponseCallback], Cancel]) -> bytes:
    """Send a request and wait for its result; cancelled with the waiting task."""
    settled = trio.Event()
    outcome: list[bytes | None] = []

    def answered(result: bytes | None, error: bytes | None) -> None:
        outcome[:] = result, error
        settled.set()

    cancel = send(answered)
    try:
        await settled.wait()
    except trio.Cancelled:
        cancel()
        raise
    result, error = outcome
    if result is None:
        raise error_to_exception(error or b"{}")
    return result


def _nothing() -> None:
    pass


def _size(params: bytes | None) -> int:
    return _MESSAGE_OVERHEAD + (0 if params is None else len(params))


def _unusable_message_error(exc: Exception) -> bytes:
    if isinstance(exc, RecursionError | NestedTooDeeply):
        return encode_error(INVALID_REQUEST, "The MCP message is nested too deeply")
    return encode_error(INTERNAL_ERROR, "The MCP message cannot be used", type(exc).__name__)
