"""The revisions of MCP: a server of 2026-07-28 serves clients of earlier ones.

A client opens with `initialize` (*legacy*: revisions up to 2025-11-25) or `server/discover`
(*modern*: 2026-07-28). Messages are forwarded unchanged. A modern client whose `server/discover` is
refused opens with `initialize` itself, as the SDKs do; a legacy client knows no other way. So only
if the server refuses `initialize`, the bridge discovers it and translates.

The types of MCP take a third of a second to import, and are not needed for this: members that have
no counterpart keep their bytes.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from typing import Any, Final

import msgspec
import trio

from bridges.mcp_connection import Cancel, ConnectionMode, McpConnection
from conductor.bridge_api import (
    INTERNAL_ERROR,
    INVALID_PARAMS,
    METHOD_NOT_FOUND,
    REQUEST_CANCELLED,
    InFlightRequest,
    Payload,
    join_members,
    member_at,
    members_or_empty,
    with_member,
)
from conductor.json_values import decode_value
from conductor.proxy import RequestError

__all__ = ["DISCOVER_PARAMS", "MODERN_VERSION", "SameRevision", "is_modern"]

MODERN_VERSION: Final = "2026-07-28"
LEGACY_VERSIONS: Final = ("2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25")

_RESERVED: Final = "io.modelcontextprotocol/"
_VERSION_KEY: Final = f"{_RESERVED}protocolVersion"
_CAPABILITIES_KEY: Final = f"{_RESERVED}clientCapabilities"
_CLIENT_KEY: Final = f"{_RESERVED}clientInfo"
_SERVER_KEY: Final = f"{_RESERVED}serverInfo"
_LEVEL_KEY: Final = f"{_RESERVED}logLevel"
_SUBSCRIPTION_KEY: Final = f"{_RESERVED}subscriptionId"

_DISCOVER: Final = "server/discover"
_LISTEN: Final = "subscriptions/listen"
_ACKNOWLEDGED: Final = "notifications/subscriptions/acknowledged"
_LISTED_KINDS: Final = ("tools", "prompts", "resources")
_CHANGES: Final = frozenset(
    {
        *(f"notifications/{kind}/list_changed" for kind in _LISTED_KINDS),
        "notifications/resources/updated",
    }
)

_SILENCE_SECONDS: Final = 3.0
"""Seconds after which `server/discover` is refused for a server that does not answer it."""
_MAX_ROUNDS: Final = 10
"""Maximum rounds of input for one request, as in the SDKs."""
_RETRY_SECONDS: Final = 0.25
"""Seconds before a retry, if the server returned a state without input requests."""
_MAX_URI_CHARACTERS: Final = 256 * 1024

_encode = msgspec.json.Encoder().encode

_IDENTITY: Final = _encode({"name": "acp-conductor", "version": "1"})
DISCOVER_PARAMS: Final = _encode(
    {
        "_meta": {
            _VERSION_KEY: MODERN_VERSION,
            _CAPABILITIES_KEY: {},
            _CLIENT_KEY: msgspec.Raw(_IDENTITY),
        }
    }
)
"""Params of the bridge's own `server/discover`."""


def is_modern(params: Payload | None) -> bool:
    """Whether request params are of revision 2026-07-28, by the version in their `_meta`."""
    if params is None or _VERSION_KEY.encode() not in bytes(params):
        return False
    return member_at(params, "_meta", _VERSION_KEY) is not None


class SameRevision(ConnectionMode):
    """First mode of a connection: forwards messages unchanged, except subscription ids.

    Notifications of a `subscriptions/listen` stream name the request that opened it by its id at
    the server; the id is replaced by the client's. `LegacyClient` takes over if the server refuses
    `initialize`.
    """

    def __init__(self, connection: McpConnection) -> None:
        super().__init__(connection)
        self._unacknowledged: deque[InFlightRequest] = deque()
        self._listening: dict[bytes, InFlightRequest] = {}
        """Acknowledged requests, by the server's id."""

    def request(self, call: InFlightRequest, method: str, params: Payload | None) -> None:
        connection = self.connection
        match method:
            case "initialize":
                self._initialize(call, bytes(params) if params is not None else b"{}")
            case "server/discover":
                connection.start(call, self._discover, call, params and bytes(params))
            case "ping" if connection.provider.server.revision == "modern":
                connection.reply(call, b"{}", None)
            case "subscriptions/listen":
                self._listen(call, params)
            case _:
                super().request(call, method, params)

    async def _discover(self, call: InFlightRequest, params: bytes | None) -> bytes:
        """Forward `server/discover`; refuse it for a server that leaves it without an answer."""
        server = self.connection.provider.server
        if server.revision != "legacy":
            with trio.move_on_after(_SILENCE_SECONDS):
                return await self.connection.fetch(call, _DISCOVER, params)
            server.revision = "legacy"
        raise RequestError(METHOD_NOT_FOUND, "The MCP server does not answer server/discover")

    def _initialize(self, call: InFlightRequest, params: bytes) -> None:
        connection = self.connection
        connection.pause()

        def answered(result: bytes | None, error: bytes | None) -> None:
            if result is None and not _is_cancelled(error):
                connection.start(call, self._translate, call, params, error)
                return
            connection.reply(call, result, error)
            connection.resume()

        if connection.provider.server.revision == "modern":
            answered(None, None)
        else:
            connection.ask(call, "initialize", params, answered)

    async def _translate(self, call: InFlightRequest, params: bytes, refusal: bytes | None) -> None:
        """Translate if the server is modern; else the client gets its refusal."""
        connection, mode = self.connection, None
        try:
            found = await connection.fetch(call, _DISCOVER, DISCOVER_PARAMS)
            if not _offers_modern(found):
                text = f"The MCP server does not speak revision {MODERN_VERSION}"
                raise RequestError(INTERNAL_ERROR, text)
            mode = LegacyClient(connection, members_or_empty(params), members_or_empty(found))
            connection.reply(call, mode.initialize_result, None)
        except RequestError:
            if refusal is None:
                raise
            connection.reply(call, None, refusal)
        finally:
            connection.resume(mode)

    def _listen(self, call: InFlightRequest, params: Payload | None) -> None:
        self._unacknowledged.append(call)

        def answered(result: bytes | None, error: bytes | None) -> None:
            if call in self._unacknowledged:
                self._unacknowledged.remove(call)
            self._listening = {id: of for id, of in self._listening.items() if of is not call}
            renamed = None if result is None else _with_subscription(result, call)
            self.connection.reply(call, renamed, error)

        self.connection.ask(call, _LISTEN, params, answered)

    def server_notification(
        self, method: str, params: Payload | None, owner: InFlightRequest | None
    ) -> None:
        if params is not None and (method in _CHANGES or method == _ACKNOWLEDGED):
            id = member_at(params, "_meta", _SUBSCRIPTION_KEY)
            if id is not None:
                owner = owner or self._listening.get(id)
                if method == _ACKNOWLEDGED:
                    owner = self._acknowledged(id, owner)
                if owner is not None:
                    params = _with_subscription(params, owner)
        self.connection.consumer.notify(method, params, owner)

    def _acknowledged(self, id: bytes, owner: InFlightRequest | None) -> InFlightRequest | None:
        """Acknowledgements come in the order of the requests, one for each."""
        if owner is None and self._unacknowledged:
            owner = self._unacknowledged[0]
        if owner is not None and owner in self._unacknowledged:
            self._unacknowledged.remove(owner)
            self._listening[id] = owner
        return owner


class LegacyClient(ConnectionMode):
    """Translates for a legacy client of a modern server.

    Requests get the modern members of `_meta`; results lose the members that legacy clients reject.
    A result that requires input becomes requests to the client and a retry. Change notifications
    come from a `subscriptions/listen` of the bridge.
    """

    def __init__(
        self, connection: McpConnection, hello: Mapping[str, bytes], found: Mapping[str, bytes]
    ) -> None:
        super().__init__(connection)
        self._has = decode_value(found.get("capabilities", b"{}"), type=dict[str, Any])
        self._meta = {
            _VERSION_KEY: _encode(MODERN_VERSION),
            _CAPABILITIES_KEY: hello.get("capabilities", b"{}"),
            _CLIENT_KEY: hello.get("clientInfo", _IDENTITY),
        }
        version = decode_value(hello.get("protocolVersion", b"null"))
        version = version if version in LEGACY_VERSIONS else LEGACY_VERSIONS[-1]
        info = members_or_empty(found.get("_meta", b"{}")).get(_SERVER_KEY, b"null")
        result = {
            "protocolVersion": _encode(version),
            "capabilities": found.get("capabilities", b"{}"),
            "serverInfo": info if info.startswith(b"{") else b'{"name":"mcp-server","version":"0"}',
        }
        if "instructions" in found:
            result["instructions"] = found["instructions"]
        self.initialize_result = join_members(result)
        self._resources: list[str] = []
        self._stop_listening: Cancel | None = None

    def request(self, call: InFlightRequest, method: str, params: Payload | None) -> None:
        connection = self.connection
        members = members_or_empty(params or b"{}")
        match method:
            case "initialize":
                connection.reply(call, self.initialize_result, None)
            case "ping":
                connection.reply(call, b"{}", None)
            case "logging/setLevel":
                self._meta[_LEVEL_KEY] = members.get("level", b'"info"')
                connection.reply(call, b"{}", None)
            case "resources/subscribe" | "resources/unsubscribe":
                self._subscribe(method, decode_value(members.get("uri", b"null")))
                connection.reply(call, b"{}", None)
            case _:

                def answered(result: bytes | None, error: bytes | None) -> None:
                    if result is not None and _requires_input(result):
                        connection.start(call, self._answer_input, call, method, members, result)
                    else:
                        answer = None if result is None else _as_legacy(result)
                        connection.reply(call, answer, error)

                connection.ask(call, method, self._stamped(members), answered)

    def notification(self, method: str, params: Payload | None) -> None:
        """Drop the notification: a modern server takes none but cancellations."""
        if method == "notifications/initialized":
            self._listen()

    def server_notification(
        self, method: str, params: Payload | None, owner: InFlightRequest | None
    ) -> None:
        if method == _ACKNOWLEDGED:
            return
        if params is not None and _SUBSCRIPTION_KEY.encode() in bytes(params):
            members = _without_meta(members_or_empty(params), _SUBSCRIPTION_KEY)
            params = join_members(members) if members else None
        self.connection.consumer.notify(method, params, owner)

    def closed(self) -> None:
        if self._stop_listening is not None:
            self._stop_listening()

    def _stamped(self, members: Mapping[str, bytes]) -> bytes:
        meta = members_or_empty(members.get("_meta", b"{}"))
        return join_members({**members, "_meta": join_members({**meta, **self._meta})})

    async def _answer_input(
        self, call: InFlightRequest, method: str, members: Mapping[str, bytes], result: bytes
    ) -> bytes:
        """Ask the client for the input that the result requires, and send the request again."""
        for _ in range(_MAX_ROUNDS):
            required = members_or_empty(result)
            more = {name: required[name] for name in ("requestState",) if name in required}
            asked = members_or_empty(required.get("inputRequests", b"{}"))
            requests = {key: members_or_empty(each) for key, each in asked.items()}
            methods = {key: decode_value(each["method"], str) for key, each in requests.items()}
            responses = {
                key: await self.connection.ask_consumer(methods[key], each.get("params"))
                for key, each in requests.items()
            }
            if responses:
                more["inputResponses"] = join_members(responses)
            else:
                await trio.sleep(_RETRY_SECONDS)
            result = await self.connection.fetch(call, method, self._stamped({**members, **more}))
            if not _requires_input(result):
                return _as_legacy(result)
        raise RequestError(INTERNAL_ERROR, "The MCP server asked for input too many times")

    def _subscribe(self, method: str, uri: str) -> None:
        resources = [one for one in self._resources if one != uri]
        if method == "resources/subscribe":
            resources.append(uri)
            _check_uris(resources)
        self._resources = resources
        self._listen()

    def _listen(self) -> None:
        """Open the subscription stream, or replace it after the resources have changed."""
        if self._stop_listening is not None:
            self._stop_listening()
            self._stop_listening = None
        wanted: dict[str, Any] = {
            f"{kind}ListChanged": True
            for kind in _LISTED_KINDS
            if (self._has.get(kind) or {}).get("listChanged")
        }
        if self._resources:
            wanted["resourceSubscriptions"] = self._resources
        if wanted:
            params = self._stamped({"notifications": _encode(wanted)})
            self._stop_listening = self.connection.send_own(_LISTEN, params)


def _requires_input(result: bytes) -> bool:
    kind = b'"input_required"'
    return kind in result and members_or_empty(result).get("resultType") == kind


def _as_legacy(result: bytes) -> bytes:
    """Remove the members of revision 2026-07-28 from a result: legacy clients reject them."""
    members = members_or_empty(result)
    for name in ("resultType", "ttlMs", "cacheScope"):
        members.pop(name, None)
    return join_members(_without_meta(members, _SERVER_KEY)) if members else result


def _without_meta(members: dict[str, bytes], name: str) -> dict[str, bytes]:
    """The members without this one of `_meta`, and without an empty `_meta`."""
    meta = members_or_empty(members.pop("_meta", b"{}"))
    meta.pop(name, None)
    return {**members, "_meta": join_members(meta)} if meta else members


def _with_subscription(params: Payload, call: InFlightRequest) -> bytes:
    """The params with the id of the client's `subscriptions/listen` in `_meta`."""
    return with_member(params, ("_meta", _SUBSCRIPTION_KEY), _encode(call.source_id))


def _check_uris(uris: Iterable[str]) -> None:
    """Refuse URIs that are too long together: all are remembered, and sent with each new one."""
    if sum(len(uri) + 100 for uri in uris) > _MAX_URI_CHARACTERS:
        raise RequestError(INVALID_PARAMS, "Too many resources are subscribed to")


def _offers_modern(result: bytes) -> bool:
    """Whether a `server/discover` result lists revision 2026-07-28."""
    versions = decode_value(member_at(result, "supportedVersions") or b"null")
    return isinstance(versions, list) and MODERN_VERSION in versions


def _is_cancelled(error: bytes | None) -> bool:
    return error is not None and member_at(error, "code") == b"%d" % REQUEST_CANCELLED
