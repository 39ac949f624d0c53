"""Translator between a legacy consumer (`initialize`, up to 2025-11-25) and a modern server
(2026-07-28).

Requests get the modern members in `_meta`; results lose members that legacy clients reject; a
result that requires input becomes requests to the consumer and a retry (as the SDK's
`run_input_required_driver` does); change notifications come from a `subscriptions/listen` that the
bridge opens.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import attrs
import msgspec
from mcp_types import (
    CLIENT_CAPABILITIES_META_KEY,
    CLIENT_INFO_META_KEY,
    LOG_LEVEL_META_KEY,
    PROTOCOL_VERSION_META_KEY,
    SERVER_INFO_META_KEY,
    DiscoverResult,
    Implementation,
    InitializeResult,
)
from mcp_types.version import (
    HANDSHAKE_PROTOCOL_VERSIONS,
    LATEST_HANDSHAKE_VERSION,
    LATEST_MODERN_VERSION,
)
from msgspec import Raw
from pydantic import ValidationError

from bridges.bindings import members_of
from bridges.interfaces import NO_SOURCE, BridgeRuntime, Cancel
from bridges.mcp_connection import ConnectionMode, McpConnection
from bridges.mcp_protocol import (
    ACKNOWLEDGED,
    SUBSCRIPTION_ID,
    SUBSCRIPTIONS_LISTEN,
    TOO_MANY_RESOURCES,
    are_too_many,
)
from conductor.bridge_api import (
    INTERNAL_ERROR,
    InFlightRequest,
    Payload,
    encode_error,
)
from conductor.json_values import decode_value

__all__ = ["LegacyClientModernServer"]

_MAX_ROUNDS: Final = 10
"""Maximum rounds of input for one request, as in the SDKs."""

_RETRY_SECONDS: Final = 0.25
"""Seconds before a retry, if the server returned a state without input requests."""

_encode = msgspec.json.Encoder().encode


@attrs.define(eq=False)
class _InputRounds:
    """One request of the consumer, with the input that the server has requested."""

    call: InFlightRequest
    method: str
    params: dict[str, Raw]
    count: int = 0
    open: dict[str, Cancel] = attrs.field(factory=dict)
    responses: dict[str, Raw] = attrs.field(factory=dict)


class LegacyClientModernServer(ConnectionMode):
    def __init__(
        self,
        mcp_connection: McpConnection,
        runtime: BridgeRuntime,
        initialize_params: Mapping[str, Raw],
        discovered: dict[str, Any],
    ) -> None:
        super().__init__(mcp_connection)
        self._runtime = runtime
        self._discovered = discovered
        self._envelope = {
            PROTOCOL_VERSION_META_KEY: Raw(_encode(LATEST_MODERN_VERSION)),
            CLIENT_CAPABILITIES_META_KEY: initialize_params.get("capabilities", Raw(b"{}")),
        }
        if "clientInfo" in initialize_params:
            self._envelope[CLIENT_INFO_META_KEY] = initialize_params["clientInfo"]
        self._resources: list[Any] = []
        self._listening: Cancel | None = None
        self._rounds: dict[InFlightRequest, _InputRounds] = {}

    def request(self, call: InFlightRequest, method: str, params: Payload | None) -> None:
        members = members_of(params) if params is not None else {}
        match method:
            case "initialize":
                self.mcp_connection.reply(call, self._initialize_result(members), None)
            case "ping":
                self.mcp_connection.reply(call, b"{}", None)
            case "logging/setLevel":
                self._envelope[LOG_LEVEL_META_KEY] = members.get("level", Raw(b'"info"'))
                self.mcp_connection.reply(call, b"{}", None)
            case "resources/subscribe" | "resources/unsubscribe":
                self._subscribe(call, method, decode_value(members.get("uri", b"null")))
            case _:
                self._send(_InputRounds(call, method, members))

    def notification(self, method: str, params: Payload | None) -> None:
        """Drop the notification: revision 2026-07-28 has none from a client but cancellations."""
        if method == "notifications/initialized":
            self._listen()

    def server_notification(
        self, method: str, params: Payload | None, owner: InFlightRequest | None
    ) -> None:
        if method == ACKNOWLEDGED:
            return
        if params is not None and SUBSCRIPTION_ID.encode() in bytes(params):
            members = members_of(params)
            meta = {k: v for k, v in members_of(members["_meta"]).items() if k != SUBSCRIPTION_ID}
            params = _encode(_with_meta(members, meta)) if meta or len(members) > 1 else None
        self.mcp_connection.consumer.notify(method, params, owner)

    def cancelled(self, call: InFlightRequest) -> None:
        rounds = self._rounds.pop(call, None)
        if rounds is not None:
            self._withdraw(rounds)

    def closed(self) -> None:
        if self._listening is not None:
            self._listening()
        for rounds in self._rounds.values():
            self._withdraw(rounds)

    # -- requests ----------------------------------------------------------------------------------

    def _send(self, rounds: _InputRounds) -> None:
        meta = members_of(rounds.params.get("_meta", b"{}"))
        params = _with_meta(rounds.params, {**meta, **self._envelope})
        self.mcp_connection.ask(
            rounds.call,
            rounds.method,
            _encode(params),
            lambda result, error: self._answered(rounds, result, error),
        )

    def _answered(self, rounds: _InputRounds, result: bytes | None, error: bytes | None) -> None:
        if result is None:
            self._settle(rounds, None, error)
            return
        members = members_of(result)
        if members.get("resultType") == _INPUT_REQUIRED:
            self._ask_consumer(rounds, members)
        elif not members:
            self._settle(rounds, result, None)
        else:
            self._settle(rounds, _as_legacy(members), None)

    def _settle(self, rounds: _InputRounds, result: bytes | None, error: bytes | None) -> None:
        self._rounds.pop(rounds.call, None)
        self.mcp_connection.reply(rounds.call, result, error)

    # -- input that a server requires --------------------------------------------------------------

    def _ask_consumer(self, rounds: _InputRounds, result: dict[str, Raw]) -> None:
        rounds.count += 1
        if rounds.count > _MAX_ROUNDS:
            error = encode_error(INTERNAL_ERROR, "The MCP server asked for input too many times")
            self._settle(rounds, None, error)
            return
        asked = members_of(result.get("inputRequests", b"{}"))
        requests = {key: _input_request(raw) for key, raw in asked.items()}
        self._rounds[rounds.call] = rounds
        rounds.responses.clear()
        rounds.params.pop("inputResponses", None)
        rounds.params.pop("requestState", None)
        if "requestState" in result:
            rounds.params["requestState"] = result["requestState"]
        if not requests:
            self._runtime.later(_RETRY_SECONDS, lambda: self._retry(rounds))
            return
        for key, (method, params) in requests.items():
            rounds.open[key] = self.mcp_connection.consumer.request(
                method,
                params,
                lambda r, e, key=key: self._on_input(rounds, key, r, e),  # type: ignore[misc]
            )

    def _on_input(
        self, rounds: _InputRounds, key: str, result: bytes | None, error: bytes | None
    ) -> None:
        if rounds.open.pop(key, None) is None or self._rounds.get(rounds.call) is not rounds:
            return
        if result is None:
            self._withdraw(rounds)
            self._settle(rounds, None, error)
            return
        rounds.responses[key] = Raw(result)
        if not rounds.open:
            rounds.params["inputResponses"] = Raw(_encode(rounds.responses))
            self._retry(rounds)

    def _retry(self, rounds: _InputRounds) -> None:
        if self._rounds.pop(rounds.call, None) is not None and not self.mcp_connection.closed:
            self._send(rounds)

    def _withdraw(self, rounds: _InputRounds) -> None:
        for cancel in rounds.open.values():
            cancel()
        rounds.open.clear()

    # -- change notifications ----------------------------------------------------------------------

    def _subscribe(self, call: InFlightRequest, method: str, uri: Any) -> None:
        self._resources = [one for one in self._resources if one != uri]
        if method == "resources/subscribe":
            if are_too_many([*self._resources, uri]):
                self.mcp_connection.reply(call, None, TOO_MANY_RESOURCES)
                return
            self._resources.append(uri)
        self._listen()
        self.mcp_connection.reply(call, b"{}", None)

    def _listen(self) -> None:
        """Open the subscription stream, or replace it after the resources have changed."""
        if self._listening is not None:
            self._listening()
            self._listening = None
        has = self._discovered.get("capabilities") or {}
        wanted: dict[str, Any] = {
            f"{kind}ListChanged": True
            for kind in ("tools", "prompts", "resources")
            if (has.get(kind) or {}).get("listChanged")
        }
        if self._resources:
            wanted["resourceSubscriptions"] = self._resources
        if not wanted:
            return
        params = {"notifications": wanted, "_meta": self._envelope}
        own = InFlightRequest(SUBSCRIPTIONS_LISTEN, NO_SOURCE)
        self._listening = self.mcp_connection.provider.request(
            own, SUBSCRIPTIONS_LISTEN, _encode(params), lambda result, error: None
        )

    # -- results -----------------------------------------------------------------------------------

    def _initialize_result(self, initialize_params: Mapping[str, Raw]) -> bytes:
        asked = decode_value(initialize_params.get("protocolVersion", b"null"))
        known = asked in HANDSHAKE_PROTOCOL_VERSIONS
        stamp = (self._discovered.get("_meta") or {}).get(SERVER_INFO_META_KEY)
        try:
            info = Implementation.model_validate(stamp)
        except ValidationError:
            info = Implementation(name="mcp-server", version="0")
        discovered = DiscoverResult.model_validate(self._discovered)
        result = InitializeResult(
            protocol_version=asked if known else LATEST_HANDSHAKE_VERSION,
            capabilities=discovered.capabilities,
            server_info=info,
            instructions=discovered.instructions,
        )
        return result.model_dump_json(by_alias=True, exclude_none=True).encode()


_INPUT_REQUIRED: Final = Raw(b'"input_required"')
_MODERN_MEMBERS: Final = ("resultType", "ttlMs", "cacheScope")


def _input_request(raw: Raw) -> tuple[str, Raw | None]:
    """Method and params of a request of the server; an exception if it is none."""
    members = members_of(raw)
    return decode_value(members["method"], type=str), members.get("params")


def _as_legacy(result: dict[str, Raw]) -> bytes:
    """Remove the members of revision 2026-07-28 from a result: legacy clients reject them."""
    for name in _MODERN_MEMBERS:
        result.pop(name, None)
    if "_meta" in result:
        meta = members_of(result.pop("_meta"))
        meta.pop(SERVER_INFO_META_KEY, None)
        result = _with_meta(result, meta)
    return _encode(result)


def _with_meta(params: Mapping[str, Raw], meta: Mapping[str, Raw]) -> dict[str, Raw]:
    members = {name: value for name, value in params.items() if name != "_meta"}
    if meta:
        members["_meta"] = Raw(_encode(meta))
    return members
