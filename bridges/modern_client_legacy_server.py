"""Translator between a modern consumer (2026-07-28) and a legacy server (`initialize`, up to
2025-11-25).

Requests lose their modern `_meta` members; results get the members that revision 2026-07-28
requires. A request of the server during a call becomes the result of that call (`input_required`);
the consumer responds with a retry, which is not forwarded to the server.
"""

from __future__ import annotations

import secrets
from collections import deque
from typing import Any, Final

import attrs
import msgspec
from mcp_types import LOG_LEVEL_META_KEY, SERVER_INFO_META_KEY, DiscoverResult, ServerCapabilities
from mcp_types.methods import CACHEABLE_METHODS, INPUT_REQUIRED_METHODS
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from msgspec import Raw

from bridges.bindings import members_of, request_meta
from bridges.interfaces import NO_SOURCE, Cancel
from bridges.mcp_connection import ConnectionMode, McpConnection
from bridges.mcp_protocol import (
    ACKNOWLEDGED,
    SUBSCRIPTION_ID,
    SUBSCRIPTIONS_LISTEN,
    TOO_MANY_RESOURCES,
    are_too_many,
)
from conductor.bridge_api import (
    INVALID_PARAMS,
    METHOD_NOT_FOUND,
    InFlightRequest,
    Payload,
    ResponseCallback,
    encode_error,
)
from conductor.json_values import decode_value
from conductor.proxy import BoundedDict

__all__ = ["ModernClientLegacyServer"]

_encode = msgspec.json.Encoder().encode
_MAX_SUSPENDED: Final = 64
"""Maximum number of requests that wait for a retry with input; the oldest is given up."""
_RESERVED: Final = "io.modelcontextprotocol/"


@attrs.define(eq=False)
class _InputRequest:
    """A request of the server during a request of the consumer."""

    method: str
    params: Payload | None
    answered: ResponseCallback
    withdrawn: bool = False


@attrs.define(eq=False)
class _PendingRequest:
    """One request in flight at the server. `call` is `None` while the consumer prepares input."""

    call: InFlightRequest | None
    method: str
    cancel: Cancel = lambda: None
    state: str | None = None
    asked: dict[str, _InputRequest] = attrs.field(factory=dict)
    waiting: deque[_InputRequest] = attrs.field(factory=deque)
    outcome: tuple[bytes | None, bytes | None] | None = None


@attrs.define(eq=False)
class _Subscription:
    """An open `subscriptions/listen`."""

    call: InFlightRequest
    methods: frozenset[str]
    uris: tuple[str, ...]


class ModernClientLegacyServer(ConnectionMode):
    def __init__(self, mcp_connection: McpConnection, initialized: dict[str, Any]) -> None:
        super().__init__(mcp_connection)
        self._initialized = initialized
        self._capabilities: dict[str, Any] = initialized.get("capabilities") or {}
        self._level: str | None = None
        self._in_flight: list[_PendingRequest] = []
        self._suspended: BoundedDict[str, _PendingRequest] = BoundedDict(_MAX_SUSPENDED)
        self._streams: dict[InFlightRequest, _Subscription] = {}

    def request(self, call: InFlightRequest, method: str, params: Payload | None) -> None:
        raw = bytes(params) if params is not None else b"{}"
        members = members_of(raw)
        if method == "server/discover":
            self.mcp_connection.reply(call, self._discover_result(), None)
        elif method == SUBSCRIPTIONS_LISTEN:
            self._listen(call, members)
        elif "requestState" in members and method in INPUT_REQUIRED_METHODS:
            self._resume_request(call, members)
        else:
            self._send(call, method, members, request_meta(raw))

    def notification(self, method: str, params: Payload | None) -> None:
        """Drop the notification: revision 2026-07-28 has none from a client but cancellations."""

    def server_request(
        self, method: str, params: Payload | None, answered: ResponseCallback
    ) -> Cancel:
        if method == "ping":
            answered(b"{}", None)
            return _nothing
        pending = next(
            (one for one in reversed(self._in_flight) if one.method in INPUT_REQUIRED_METHODS), None
        )
        if pending is None:
            text = "A client of 2026-07-28 can be asked only while it waits for a request"
            answered(None, encode_error(METHOD_NOT_FOUND, text, method))
            return _nothing
        input_request = _InputRequest(method, None if params is None else bytes(params), answered)
        pending.waiting.append(input_request)
        self._request_input(pending)

        def withdraw() -> None:
            input_request.withdrawn = True

        return withdraw

    def server_notification(
        self, method: str, params: Payload | None, owner: InFlightRequest | None
    ) -> None:
        if method in _SUBSCRIPTION_NOTIFICATIONS:
            self._publish(method, params)
        elif method != "notifications/message" or self._level is not None:
            self.mcp_connection.consumer.notify(method, params, owner)

    def cancelled(self, call: InFlightRequest) -> None:
        stream = self._streams.pop(call, None)
        if stream is not None:
            for uri in stream.uris:
                if not any(uri in other.uris for other in self._streams.values()):
                    self._send_own_request("resources/unsubscribe", {"uri": uri})

    def closed(self) -> None:
        self._streams.clear()
        for pending in self._suspended.values():
            pending.cancel()

    # -- requests ----------------------------------------------------------------------------------

    def _send(
        self, call: InFlightRequest, method: str, members: dict[str, Raw], meta: dict[str, Any]
    ) -> None:
        level = meta.get(LOG_LEVEL_META_KEY)
        if level is not None and level != self._level and "logging" in self._capabilities:
            self._level = level
            self._send_own_request("logging/setLevel", {"level": level})
        kept = {name: value for name, value in meta.items() if not name.startswith(_RESERVED)}
        members.pop("_meta", None)
        if kept:
            members["_meta"] = Raw(_encode(kept))
        pending = _PendingRequest(call, method)
        self._in_flight.append(pending)
        self.mcp_connection.ask(
            call, method, _encode(members), lambda result, error: self._done(pending, result, error)
        )

    def _done(self, pending: _PendingRequest, result: bytes | None, error: bytes | None) -> None:
        if pending in self._in_flight:
            self._in_flight.remove(pending)
        if result is not None:
            result = self._as_modern(pending.method, result)
        if pending.call is None:
            pending.outcome = result, error
        else:
            self.mcp_connection.reply(pending.call, result, error)

    # -- input that the server requires ------------------------------------------------------------

    def _request_input(self, pending: _PendingRequest) -> None:
        """Answer the consumer's open request with the server's waiting input requests."""
        if pending.call is None:
            return
        pending.asked = {
            f"{index}": input_request
            for index, input_request in enumerate(pending.waiting)
            if not input_request.withdrawn
        }
        pending.waiting.clear()
        if not pending.asked:
            return
        requests: dict[str, dict[str, Any]] = {}
        for key, input_request in pending.asked.items():
            requests[key] = {"method": input_request.method}
            if input_request.params is not None:
                requests[key]["params"] = Raw(bytes(input_request.params))
        call, pending.call = pending.call, None
        pending.state = secrets.token_urlsafe(16)
        if (dropped := self._suspended.add(pending.state, pending)) is not None:
            self._give_up(dropped[1])
        pending.cancel = self.mcp_connection.detach(call)
        result = {
            "resultType": "input_required",
            "inputRequests": requests,
            "requestState": pending.state,
        }
        self.mcp_connection.reply(call, _encode(result), None)

    def _give_up(self, pending: _PendingRequest) -> None:
        for input_request in (*pending.asked.values(), *pending.waiting):
            input_request.answered(None, encode_error(INVALID_PARAMS, "No response was given"))
        pending.cancel()
        if pending in self._in_flight:
            self._in_flight.remove(pending)

    def _resume_request(self, call: InFlightRequest, members: dict[str, Raw]) -> None:
        """Handle a retry of the consumer, with its input responses."""
        pending = self._suspended.pop(str(decode_value(members["requestState"])), None)
        if pending is None:
            error = encode_error(INVALID_PARAMS, "Unknown or used requestState")
            self.mcp_connection.reply(call, None, error)
            return
        pending.call = call
        responses = members_of(members.get("inputResponses", b"{}"))
        asked, pending.asked = pending.asked, {}
        for key, input_request in asked.items():
            if key in responses:
                input_request.answered(bytes(responses[key]), None)
            else:
                input_request.answered(None, encode_error(INVALID_PARAMS, "No response was given"))
        if pending.outcome is not None:
            self.mcp_connection.reply(call, *pending.outcome)
            return
        self.mcp_connection.attach(call, pending.cancel)
        self._request_input(pending)

    # -- change notifications ----------------------------------------------------------------------

    def _listen(self, call: InFlightRequest, members: dict[str, Raw]) -> None:
        wanted = decode_value(members.get("notifications", b"{}"))
        wanted = wanted if isinstance(wanted, dict) else {}
        uris = tuple(uri for uri in wanted.get("resourceSubscriptions") or () if uri)
        kinds = [k for k in ("tools", "prompts", "resources") if wanted.get(f"{k}ListChanged")]
        methods = frozenset(f"notifications/{kind}/list_changed" for kind in kinds)
        listed = [each for stream in self._streams.values() for each in stream.uris]
        if are_too_many([*listed, *uris]):
            self.mcp_connection.reply(call, None, TOO_MANY_RESOURCES)
            return
        for uri in uris:
            self._send_own_request("resources/subscribe", {"uri": uri})
        self._streams[call] = _Subscription(call, methods, uris)
        honored: dict[str, Any] = {f"{kind}ListChanged": True for kind in kinds}
        if uris:
            honored["resourceSubscriptions"] = list(uris)
        params = {"notifications": honored, "_meta": {SUBSCRIPTION_ID: call.source_id}}
        self.mcp_connection.consumer.notify(ACKNOWLEDGED, _encode(params), call)

    def _publish(self, method: str, params: Payload | None) -> None:
        members = members_of(params) if params is not None else {}
        uri = decode_value(members["uri"]) if "uri" in members else None
        for stream in self._streams.values():
            if method in stream.methods or (uri is not None and uri in stream.uris):
                meta = members_of(members.get("_meta", b"{}"))
                meta[SUBSCRIPTION_ID] = Raw(_encode(stream.call.source_id))
                frame = {**members, "_meta": Raw(_encode(meta))}
                self.mcp_connection.consumer.notify(method, _encode(frame), stream.call)

    def _send_own_request(self, method: str, params: dict[str, Any]) -> None:
        """Send a request of the bridge itself and ignore the response."""
        own = InFlightRequest(method, NO_SOURCE)
        self.mcp_connection.provider.request(
            own, method, _encode(params), lambda result, error: None
        )

    # -- results -----------------------------------------------------------------------------------

    def _as_modern(self, method: str, result: bytes) -> bytes:
        members = members_of(result)
        members.setdefault("resultType", Raw(b'"complete"'))
        if method in CACHEABLE_METHODS:
            members.setdefault("ttlMs", Raw(b"0"))
            members.setdefault("cacheScope", Raw(b'"private"'))
        meta = members_of(members.get("_meta", b"{}"))
        meta.setdefault(SERVER_INFO_META_KEY, Raw(_encode(self._initialized.get("serverInfo"))))
        members["_meta"] = Raw(_encode(meta))
        return _encode(members)

    def _discover_result(self) -> bytes:
        result = DiscoverResult(
            supported_versions=list(MODERN_PROTOCOL_VERSIONS),
            capabilities=ServerCapabilities.model_validate(self._capabilities),
            instructions=self._initialized.get("instructions"),
            _meta={SERVER_INFO_META_KEY: self._initialized.get("serverInfo")},
        )
        return result.model_dump_json(by_alias=True, exclude_none=True).encode()


_SUBSCRIPTION_NOTIFICATIONS: Final = frozenset(
    {
        "notifications/tools/list_changed",
        "notifications/prompts/list_changed",
        "notifications/resources/list_changed",
        "notifications/resources/updated",
    }
)


def _nothing() -> None:
    pass
