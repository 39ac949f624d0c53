"""One MCP connection across the bridge: a consumer's messages go to a provider, and back.

Nothing here waits: messages are put in and handed on in the step that brought them, so their order
stays. What a message means where it arrives is the business of a `ConnectionMode`: usually none
(`PassThrough`); where the two ends speak different MCP revisions, a translator
(`bridges.translation`). The first request decides. While a link opens, or decides, what the
consumer sends waits in it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any, Final, Protocol, TypeAlias

import msgspec

from bridges.bindings import members_of
from conductor.bridging import (
    INTERNAL_ERROR,
    INVALID_REQUEST,
    InFlightRequest,
    Payload,
    ResponseCallback,
    encode_error,
)
from conductor.log import get_logger

__all__ = [
    "CANCELLED",
    "MODERN_META",
    "SUBSCRIPTIONS_LISTEN",
    "TOOLS_CHANGED",
    "Cancel",
    "ConnectionMode",
    "Consumer",
    "McpConnection",
    "PassThrough",
    "Provider",
    "is_modern",
]

CANCELLED: Final = "notifications/cancelled"
SUBSCRIPTIONS_LISTEN: Final = "subscriptions/listen"
TOOLS_CHANGED: Final = "notifications/tools/list_changed"
MODERN_META: Final = b"io.modelcontextprotocol/protocolVersion"
"""What every request of revision 2026-07-28 has in its `_meta`, and no earlier one."""

_MAX_QUEUED_BYTES: Final = 256 * 1024
"""Bytes that wait in a link, or its provider, before its consumer is not read any more."""
_MESSAGE_OVERHEAD: Final = 500
"""What a message takes beside its params."""

log = get_logger(component="mcp-bridge")

Cancel: TypeAlias = Callable[[], None]


class Consumer(Protocol):
    """Who uses the server: a shim, an HTTP session, a native agent."""

    def respond(self, call: InFlightRequest, result: Payload | None, error: Payload | None) -> None:
        """Answer a request of the consumer's."""

    def request(self, method: str, params: Payload | None, answered: ResponseCallback) -> Cancel:
        """Ask the consumer (sampling, elicitation, roots)."""

    def notify(
        self, method: str, params: Payload | None, owner: InFlightRequest | None = None
    ) -> None:
        """Tell the consumer; `owner` is the request of its own that this is about, if known."""

    def close(self) -> None:
        """There is no more to come."""


class Provider(Protocol):
    """Who offers the server, in its own binding."""

    modern: bool
    """Whether it is known to speak nothing but revision 2026-07-28."""

    @property
    def waiting_bytes(self) -> int:
        """Bytes of requests that it has not sent to the server yet; when they become fewer, it
        calls `made_room` of its link."""

    def request(
        self, call: InFlightRequest, method: str, params: Payload | None, answered: ResponseCallback
    ) -> Cancel:
        """Ask the server, for the consumer's `call`."""

    def notify(self, method: str, params: Payload | None) -> None:
        """Tell the server."""

    def close(self) -> None:
        """Nobody uses it any more."""


class RequestFilter(Protocol):
    """What stands before a server that several sessions of the agent can reach."""

    def takes(self, call: InFlightRequest, method: str, params: Payload | None) -> bool:
        """Whether this request of the agent's is dealt with there."""

    def answered(self, result: bytes) -> bytes:
        """What the agent is told in place of the server's list of tools."""

    def changed(self) -> None:
        """The server says that its tools are other ones now."""

    def close(self) -> None:
        """The link is closed."""


class ConnectionMode:
    """What becomes of the messages of an open link."""

    def __init__(self, mcp_connection: McpConnection) -> None:
        self.mcp_connection = mcp_connection

    def request(self, call: InFlightRequest, method: str, params: Payload | None) -> None:
        """The consumer asks."""
        self.mcp_connection.ask(
            call, method, params, lambda r, e: self.mcp_connection.reply(call, r, e)
        )

    def notification(self, method: str, params: Payload | None) -> None:
        """The consumer tells."""
        self.mcp_connection.provider.notify(method, params)

    def server_request(
        self, method: str, params: Payload | None, answered: ResponseCallback
    ) -> Cancel:
        """The server asks."""
        return self.mcp_connection.consumer.request(method, params, answered)

    def server_notification(
        self, method: str, params: Payload | None, owner: InFlightRequest | None
    ) -> None:
        """The server tells."""
        self.mcp_connection.consumer.notify(method, params, owner)

    def cancelled(self, call: InFlightRequest) -> None:
        """The consumer does not want the answer any more."""

    def closed(self) -> None:
        """The consumer is gone."""


class McpConnection:
    """What a mode raises over a message of a foreign peer (nested too deep, or not what MCP says)
    fails that message: a request is answered with an error, a notification is dropped.

    `begin` is called with the link when its provider is there, for the first mode; `refused`
    when it cannot be reached."""

    def __init__(
        self,
        consumer: Consumer,
        begin: Callable[[McpConnection], ConnectionMode],
        refused: Callable[[bytes], None] | None = None,
    ) -> None:
        self.consumer = consumer
        self.closed = False
        self.session_filter: RequestFilter | None = None
        """Keeps other sessions of the agent away from the server, where that is needed."""
        self.made_room: Callable[[], object] = _nothing
        """Called when what waited here has gone on."""
        self.withdraw_connect: Cancel = _nothing
        """Withdraws the request by which the provider is being reached."""
        self._begin = begin
        self._tell_refused = refused
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
        """Whether so much waits, here or in the provider, that the consumer should not be read."""
        waiting = self._waiting_bytes
        if self._provider is not None:
            waiting += self._provider.waiting_bytes
        return waiting > _MAX_QUEUED_BYTES

    # -- its life ----------------------------------------------------------------------------------

    def open(self, provider: Provider) -> None:
        """The provider is reached."""
        self._provider = provider
        if self.closed:
            provider.close()
            return
        self._mode = self._begin(self)
        self.resume()

    def refuse(self, error: bytes) -> None:
        """The provider cannot be reached: whatever is asked gets this answer."""
        self._refused = error
        if self._tell_refused is not None:
            self._tell_refused(error)
        self.resume()

    def pause(self) -> None:
        """Let the consumer's messages wait until `resume`."""
        self._paused = True

    def resume(self, mode: ConnectionMode | None = None) -> None:
        """Let the consumer's messages go on, perhaps in another mode."""
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
        """The consumer is gone, or its declaration is: everything open is withdrawn."""
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
        """Send a request to the provider, which `session_filter` has seen."""
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
        """The consumer does not want the answer to this call any more (`RequestTarget`)."""
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
        """Let a mode have a message of a foreign peer; `call` is answered if it cannot take it.

        Modes read what peers of any kind send, some of it with the SDK's types: what they may raise
        is not known, and is about this message alone. Everything else that waits for `call`, with
        which the link may be opening, goes on.
        """
        try:
            function(*args)
        except Exception as exc:
            log.warning("an MCP message cannot be used", error=f"{type(exc).__name__}: {exc}")
            if call is not None and not self.closed:
                self._asked.pop(call, None)
                self.consumer.respond(call, None, _unusable_message_error(exc))
                if self._paused:
                    self.resume()

    # -- for modes ---------------------------------------------------------------------------------

    def ask(
        self, call: InFlightRequest, method: str, params: Payload | None, answered: ResponseCallback
    ) -> None:
        """Ask the provider for a call of the consumer's; `answered` gets the answer."""

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
        """The provider works on although the consumer's call is answered; returns what stops it."""
        return self._asked.pop(call, lambda: None)

    def attach(self, call: InFlightRequest, cancel: Cancel) -> None:
        """The provider works for this call now."""
        self._asked[call] = cancel

    def reply(self, call: InFlightRequest, result: Payload | None, error: Payload | None) -> None:
        self._asked.pop(call, None)
        if self.session_filter is not None and result is not None and call.method == "tools/list":
            result = self.session_filter.answered(bytes(result))
        self.consumer.respond(call, result, error)


class PassThrough(ConnectionMode):
    """Both ends speak the same revision: nothing is looked at, but for subscriptions.

    Frames of a `subscriptions/listen` stream name the request that opened it by the id it had on
    the server's side of the bridge; the consumer knows it by its own.
    """

    def __init__(self, mcp_connection: McpConnection) -> None:
        super().__init__(mcp_connection)
        self._unacknowledged: deque[InFlightRequest] = deque()
        self._listening: dict[Any, InFlightRequest] = {}

    def request(self, call: InFlightRequest, method: str, params: Payload | None) -> None:
        if method != SUBSCRIPTIONS_LISTEN:
            super().request(call, method, params)
            return
        self._unacknowledged.append(call)
        self.mcp_connection.ask(call, method, params, lambda r, e: self._listened(call, r, e))

    def server_notification(
        self, method: str, params: Payload | None, owner: InFlightRequest | None
    ) -> None:
        if params is not None and method in _SUBSCRIPTION_NOTIFICATIONS:
            owner, params = self._renamed(method, bytes(params), owner)
        self.mcp_connection.consumer.notify(method, params, owner)

    def _listened(self, call: InFlightRequest, result: bytes | None, error: bytes | None) -> None:
        if call in self._unacknowledged:
            self._unacknowledged.remove(call)
        self._listening = {id: of for id, of in self._listening.items() if of is not call}
        if result is not None:
            result = with_subscription_id(result, call.source_id)
        self.mcp_connection.reply(call, result, error)

    def _renamed(
        self, method: str, params: bytes, owner: InFlightRequest | None
    ) -> tuple[InFlightRequest | None, bytes]:
        id = subscription_id_in(params)
        if id is None:
            return owner, params
        if owner is None:
            owner = self._listening.get(id)
        if owner is None and method == ACKNOWLEDGED and self._unacknowledged:
            owner = self._unacknowledged[0]  # acknowledgements come in the order of the requests
        if owner is None:
            return None, params
        if method == ACKNOWLEDGED:
            if owner in self._unacknowledged:
                self._unacknowledged.remove(owner)
            self._listening[id] = owner
        return owner, with_subscription_id(params, owner.source_id)


ACKNOWLEDGED: Final = "notifications/subscriptions/acknowledged"
SUBSCRIPTION_ID: Final = "io.modelcontextprotocol/subscriptionId"
_SUBSCRIPTION_NOTIFICATIONS: Final = frozenset(
    {
        ACKNOWLEDGED,
        TOOLS_CHANGED,
        "notifications/prompts/list_changed",
        "notifications/resources/list_changed",
        "notifications/resources/updated",
    }
)


def _nothing() -> None:
    pass


def _size(params: bytes | None) -> int:
    return _MESSAGE_OVERHEAD + (0 if params is None else len(params))


def _unusable_message_error(exc: Exception) -> bytes:
    if isinstance(exc, RecursionError):
        return encode_error(INVALID_REQUEST, "The MCP message is nested too deep")
    return encode_error(INTERNAL_ERROR, "The MCP message cannot be used", type(exc).__name__)


def is_modern(params: Payload | None) -> bool:
    """Whether a request is one of revision 2026-07-28: those say so in their `_meta`."""
    if params is None or MODERN_META not in bytes(params):
        return False
    meta = members_of(params).get("_meta")
    return meta is not None and MODERN_META.decode() in members_of(meta)


def subscription_id_in(params: bytes) -> int | str | None:
    meta = members_of(params).get("_meta")
    raw = members_of(meta).get(SUBSCRIPTION_ID) if meta is not None else None
    value = msgspec.json.decode(raw) if raw is not None else None
    return value if isinstance(value, int | str) else None


def with_subscription_id(params: bytes, id: int | str | None) -> bytes:
    """The frame with the subscription named by another id."""
    members = members_of(params)
    meta = members_of(members.get("_meta", b"{}"))
    if SUBSCRIPTION_ID not in meta:
        return params
    meta[SUBSCRIPTION_ID] = msgspec.Raw(msgspec.json.encode(id))
    members["_meta"] = msgspec.Raw(msgspec.json.encode(meta))
    return msgspec.json.encode(members)
