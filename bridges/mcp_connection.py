"""One MCP connection across the bridge: forwards messages between a consumer and a provider.

Consumer: the agent's MCP client. Provider: the MCP server. No function here waits: a message is
handed on synchronously, which keeps the order. A `ConnectionMode` handles the messages: the
handshake at first, then `pass_through`, or a translator if the two ends speak different MCP
revisions. While the provider is being reached and during the handshake, messages of the consumer
are queued.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any, Final

from bridges.interfaces import Cancel, Consumer, Provider, RequestFilter
from bridges.mcp_protocol import TOOLS_CHANGED
from conductor.bridge_api import (
    INTERNAL_ERROR,
    INVALID_REQUEST,
    InFlightRequest,
    Payload,
    ResponseCallback,
    encode_error,
)
from conductor.json_values import NestedTooDeeply
from conductor.log import get_logger

__all__ = ["ConnectionMode", "McpConnection", "import_error"]

_MAX_QUEUED_BYTES: Final = 256 * 1024
"""Queued bytes, here and in the provider, above which the consumer is not read."""
_MESSAGE_OVERHEAD: Final = 500
"""Estimated size of a queued message without its params, in bytes."""

log = get_logger(component="mcp-bridge")


class ConnectionMode:
    """Handles the messages of an open connection. This base class forwards them."""

    def __init__(self, mcp_connection: McpConnection) -> None:
        self.mcp_connection = mcp_connection

    def request(self, call: InFlightRequest, method: str, params: Payload | None) -> None:
        """Handle a request of the consumer."""
        self.mcp_connection.ask(
            call, method, params, lambda r, e: self.mcp_connection.reply(call, r, e)
        )

    def notification(self, method: str, params: Payload | None) -> None:
        """Handle a notification of the consumer."""
        self.mcp_connection.provider.notify(method, params)

    def server_request(
        self, method: str, params: Payload | None, answered: ResponseCallback
    ) -> Cancel:
        """Handle a request of the server; returns a function that cancels it."""
        return self.mcp_connection.consumer.request(method, params, answered)

    def server_notification(
        self, method: str, params: Payload | None, owner: InFlightRequest | None
    ) -> None:
        """Handle a notification of the server."""
        self.mcp_connection.consumer.notify(method, params, owner)

    def cancelled(self, call: InFlightRequest) -> None:
        """The consumer has cancelled a request."""

    def closed(self) -> None:
        """The connection is closed."""


class McpConnection:
    """An MCP connection between a consumer and a provider.

    `begin` is called when the provider is reached, and returns the first mode; `refused` is called
    with the raw error if it cannot be reached. An exception of a mode over a message (nested too
    deeply, or invalid MCP) fails only that message: a request is answered with an error, a
    notification is dropped."""

    def __init__(
        self,
        consumer: Consumer,
        begin: Callable[[McpConnection], ConnectionMode],
        refused: Callable[[bytes], None] | None = None,
    ) -> None:
        self.consumer = consumer
        self.closed = False
        self.session_filter: RequestFilter | None = None
        """Refuses calls of other sessions, for an agent that shares servers."""
        self.made_room: Callable[[], object] = _nothing
        """Called when queued messages have been sent."""
        self.withdraw_connect: Cancel = _nothing
        """Cancels the request by which the provider is being reached."""
        self.on_start: Callable[[bytes | None], object] | None = None
        """Called once: when the server has answered, or with the raw error that it did not."""
        self._begin = begin
        self._on_refused = refused
        self._provider: Provider | None = None
        self._mode: ConnectionMode | None = None
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
        self._mode = self._begin(self)
        self.resume()

    def refuse(self, error: bytes) -> None:
        """Answer all requests with `error`: the provider cannot be reached."""
        self._refused = error
        self._report_start(error)
        if self._on_refused is not None:
            self._on_refused(error)
        self.resume()

    def give_up(self, error: bytes) -> None:
        """Answer open requests and all later ones with `error`: the server does not start."""
        self._refused = error
        self._report_start(error)
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
            self._mode = mode
        self._paused = False
        while self._waiting and not self._paused:
            call, method, params = self._waiting.popleft()
            self._waiting_bytes -= _size(params)
            if call is None:
                self.notification(method, params)
            elif not call.answered:
                self.pass_request(call, method, params)
        self.made_room()

    def close(self) -> None:
        """Close both ends and cancel all open requests."""
        if self.closed:
            return
        self.closed = True
        if self.session_filter is not None:
            self.session_filter.close()
        if self._mode is not None:
            self._mode.closed()
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
        call.target = self
        if self.session_filter is None or not self.session_filter.takes(call, method, params):
            self.pass_request(call, method, params)

    def pass_request(self, call: InFlightRequest, method: str, params: Payload | None) -> None:
        """Handle a request after the session filter: respond, queue it, or give it to the mode."""
        if self._refused is not None:
            self.consumer.respond(call, None, self._refused)
        elif self._paused:
            self._wait(call, method, params)
        else:
            assert self._mode is not None
            self.contain(call, self._mode.request, call, method, params)

    def notification(self, method: str, params: Payload | None) -> None:
        if self._refused is not None:
            return
        if self._paused:
            self._wait(None, method, params)
        else:
            assert self._mode is not None
            self.contain(None, self._mode.notification, method, params)

    def _wait(self, call: InFlightRequest | None, method: str, params: Payload | None) -> None:
        kept = None if params is None else bytes(params)
        self._waiting.append((call, method, kept))
        self._waiting_bytes += _size(kept)

    def cancel(self, call: InFlightRequest) -> None:
        """Cancel a request of the consumer (`RequestTarget`)."""
        if self._mode is not None:
            self._mode.cancelled(call)
        cancel = self._asked.get(call)
        if cancel is not None:
            cancel()

    # -- from the provider -------------------------------------------------------------------------

    def server_request(
        self, method: str, params: Payload | None, answered: ResponseCallback
    ) -> Cancel:
        if self.closed or self._mode is None:
            answered(None, encode_error(INTERNAL_ERROR, "The MCP connection is closed"))
            return lambda: None
        try:
            return self._mode.server_request(method, params, answered)
        except Exception as exc:  # see `contain`
            answered(None, _unusable_message_error(exc))
            return _nothing

    def server_notification(
        self, method: str, params: Payload | None, owner: InFlightRequest | None = None
    ) -> None:
        if self.closed or self._mode is None:
            return
        if self.session_filter is not None and method == TOOLS_CHANGED:
            self.session_filter.changed()
        self.contain(None, self._mode.server_notification, method, params, owner)

    def contain(
        self, call: InFlightRequest | None, function: Callable[..., None], *args: Any
    ) -> None:
        """Call `function` with a message; an exception is logged and answers `call` with an error.

        Modes decode messages of arbitrary peers, partly with the SDK's types: which exceptions they
        raise is unknown, and each concerns this message only. If the handshake waits for `call`,
        the queued messages are sent.
        """
        try:
            function(*args)
        except Exception as exc:
            log.warning("MCP message failed", error=f"{type(exc).__name__}: {exc}")
            if call is not None and not self.closed:
                self.reply(call, None, _unusable_message_error(exc))
                if self._paused:
                    self.resume()

    # -- for modes ---------------------------------------------------------------------------------

    def ask(
        self, call: InFlightRequest, method: str, params: Payload | None, answered: ResponseCallback
    ) -> None:
        """Send a request to the provider for `call`; `answered` gets the response."""

        def settled(result: bytes | None, error: bytes | None) -> None:
            self._asked.pop(call, None)
            if not self.closed:
                self.contain(call, answered, result, error)

        cancel = self.provider.request(call, method, params, settled)
        if not call.answered:
            self._asked[call] = cancel
        if call.cancelled:
            cancel()

    def detach(self, call: InFlightRequest) -> Cancel:
        """Keep the provider's request running after `call` is answered; returns a function that
        cancels it."""
        return self._asked.pop(call, lambda: None)

    def attach(self, call: InFlightRequest, cancel: Cancel) -> None:
        """Associate a running request of the provider with another `call`."""
        self._asked[call] = cancel

    def reply(self, call: InFlightRequest, result: Payload | None, error: Payload | None) -> None:
        self._asked.pop(call, None)
        if self.on_start is not None and (result is not None or call.method == "initialize"):
            self._report_start(None if result is not None else bytes(error or b"null"))
        if self.session_filter is not None and result is not None and call.method == "tools/list":
            result = self.session_filter.answered(bytes(result))
        self.consumer.respond(call, result, error)

    def _report_start(self, error: bytes | None) -> None:
        on_start, self.on_start = self.on_start, None
        if on_start is not None:
            on_start(error)


def _nothing() -> None:
    pass


def _size(params: bytes | None) -> int:
    return _MESSAGE_OVERHEAD + (0 if params is None else len(params))


def import_error(exc: Exception) -> bytes:
    """The raw error for requests that need modules which cannot be imported."""
    return encode_error(INTERNAL_ERROR, "The MCP SDK cannot be imported", str(exc))


def _unusable_message_error(exc: Exception) -> bytes:
    if isinstance(exc, ImportError):
        return import_error(exc)
    if isinstance(exc, RecursionError | NestedTooDeeply):
        return encode_error(INVALID_REQUEST, "The MCP message is nested too deeply")
    return encode_error(INTERNAL_ERROR, "The MCP message cannot be used", type(exc).__name__)
