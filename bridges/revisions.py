"""The revisions of MCP: find those of both ends of a connection, and translate if they differ.

A client opens with `initialize` (*legacy*: revisions up to 2025-11-25) or `server/discover`
(*modern*: 2026-07-28). The request is forwarded unchanged, as a server of the same revision needs
no translation. Only if the server refuses it, or leaves `server/discover` without an answer, the
bridge opens in the other revision and translates.

The types of MCP take a third of a second to import, and are not needed for this: members that have
no counterpart keep their bytes.
"""

from __future__ import annotations

import secrets
from collections import deque
from collections.abc import Iterable, Mapping
from typing import Any, Final

import attrs
import msgspec
import trio

from bridges.mcp_connection import Cancel, ConnectionMode, McpConnection
from conductor.bounded_dict import BoundedDict
from conductor.bridge_api import (
    INTERNAL_ERROR,
    INVALID_PARAMS,
    METHOD_NOT_FOUND,
    REQUEST_CANCELLED,
    InFlightRequest,
    Payload,
    ResponseCallback,
    encode_error,
    error_to_exception,
    join_members,
    member_at,
    members_or_empty,
    with_member,
)
from conductor.json_values import decode_value
from conductor.proxy import RequestError

__all__ = ["DISCOVER_PARAMS", "MODERN_VERSION", "Handshake", "is_modern"]

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
CACHEABLE_METHODS: Final = frozenset(
    {
        "server/discover",
        "tools/list",
        "prompts/list",
        "resources/list",
        "resources/templates/list",
        "resources/read",
    }
)
INPUT_REQUIRED_METHODS: Final = frozenset({"tools/call", "prompts/get", "resources/read"})

_SILENCE_SECONDS: Final = 3.0
"""Seconds after which a server that has not answered `server/discover` is asked to initialize."""
_MAX_ROUNDS: Final = 10
"""Maximum rounds of input for one request, as in the SDKs."""
_RETRY_SECONDS: Final = 0.25
"""Seconds before a retry, if the server returned a state without input requests."""
_MAX_SUSPENDED: Final = 64
"""Maximum number of requests that wait for a retry with input; the oldest is given up."""
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
_NO_RESPONSE: Final = encode_error(INVALID_PARAMS, "No response was given")


def is_modern(params: Payload | None) -> bool:
    """Whether request params are of revision 2026-07-28, by the version in their `_meta`."""
    if params is None or _VERSION_KEY.encode() not in bytes(params):
        return False
    return member_at(params, "_meta", _VERSION_KEY) is not None


class Handshake(ConnectionMode):
    """Mode of a connection until the revisions of both ends are known."""

    def request(self, call: InFlightRequest, method: str, params: Payload | None) -> None:
        raw = bytes(params) if params is not None else b"{}"
        if method == "initialize":
            self._initialize(call, raw)
        elif method == _DISCOVER or is_modern(params):
            self.connection.pause()
            self.connection.start(call, self._discover, call, method, raw)
        elif method == "ping" and self.connection.provider.server.revision == "modern":
            self.connection.reply(call, b"{}", None)
        else:
            super().request(call, method, params)

    # -- legacy client -----------------------------------------------------------------------------

    def _initialize(self, call: InFlightRequest, params: bytes) -> None:
        connection = self.connection
        connection.pause()

        def answered(result: bytes | None, error: bytes | None) -> None:
            if result is None and not _is_cancelled(error):
                connection.start(call, self._translate_initialize, call, params, error)
                return
            connection.reply(call, result, error)
            connection.resume(SameRevision(connection) if result is not None else None)

        if connection.provider.server.revision == "modern":
            answered(None, None)
        else:
            connection.ask(call, "initialize", params, answered)

    async def _translate_initialize(
        self, call: InFlightRequest, params: bytes, refusal: bytes | None
    ) -> None:
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

    # -- modern client -----------------------------------------------------------------------------

    async def _discover(self, call: InFlightRequest, method: str, params: bytes) -> None:
        """The client discovers the server, or takes it for modern and begins with any request."""
        connection, server = self.connection, self.connection.provider.server
        mode: ConnectionMode | None = None
        found = refusal = None
        try:
            try:
                if server.revision != "legacy":
                    with trio.move_on_after(_SILENCE_SECONDS):
                        own = params if method == _DISCOVER else DISCOVER_PARAMS
                        found = await connection.fetch(call, _DISCOVER, own)
            except RequestError as exc:
                if exc.code == REQUEST_CANCELLED:
                    raise
                refusal = exc
            if found is not None and _offers_modern(found):
                mode = SameRevision(connection)
            else:
                try:
                    mode = translator = await self._initialized(call, params)
                except RequestError as exc:
                    raise refusal or exc from None
                if found is None and refusal is None:
                    server.revision = "legacy"
                found = translator.discover_result
            if method == _DISCOVER:
                connection.reply(call, found, None)
            else:
                mode.request(call, method, params)
        finally:
            connection.resume(mode)

    async def _initialized(self, call: InFlightRequest, params: bytes) -> ModernClient:
        """Initialize the server as a legacy client does."""
        meta = members_or_empty(members_or_empty(params).get("_meta", b"{}"))
        hello = {
            "protocolVersion": _encode(LEGACY_VERSIONS[-1]),
            "capabilities": meta.get(_CAPABILITIES_KEY, b"{}"),
            "clientInfo": meta.get(_CLIENT_KEY, _IDENTITY),
        }
        result = await self.connection.fetch(call, "initialize", join_members(hello))
        self.connection.provider.notify("notifications/initialized", None)
        return ModernClient(self.connection, result)


class SameRevision(ConnectionMode):
    """Mode for ends of the same revision: forwards messages unchanged, except subscription ids.

    Notifications of a `subscriptions/listen` stream name the request that opened it by its id at
    the server; the id is replaced by the client's.
    """

    def __init__(self, connection: McpConnection) -> None:
        super().__init__(connection)
        self._unacknowledged: deque[InFlightRequest] = deque()
        self._listening: dict[bytes, InFlightRequest] = {}
        """Acknowledged requests, by the server's id."""

    def request(self, call: InFlightRequest, method: str, params: Payload | None) -> None:
        if method != _LISTEN:
            super().request(call, method, params)
            return
        self._unacknowledged.append(call)

        def answered(result: bytes | None, error: bytes | None) -> None:
            if call in self._unacknowledged:
                self._unacknowledged.remove(call)
            self._listening = {id: of for id, of in self._listening.items() if of is not call}
            renamed = None if result is None else _with_subscription(result, call)
            self.connection.reply(call, renamed, error)

        self.connection.ask(call, method, params, answered)

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


# -- legacy client, modern server ------------------------------------------------------------------


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


# -- modern client, legacy server ------------------------------------------------------------------


@attrs.define(eq=False)
class _Question:
    """A request of the server during a request of the client."""

    method: str
    params: bytes | None
    answered: ResponseCallback
    is_withdrawn: bool = False


@attrs.define(eq=False)
class _Running:
    """A request at the server, which may ask questions until it is answered."""

    method: str
    cancel: Cancel = lambda: None
    outcome: tuple[bytes | None, bytes | None] | None = None
    waiting: list[_Question] = attrs.field(factory=list)
    """Questions that the client does not have yet."""
    asked: dict[str, _Question] = attrs.field(factory=dict)
    changed: trio.Event = attrs.field(factory=trio.Event)

    def give_up(self) -> None:
        questions = [*self.asked.values(), *self.waiting]
        self.asked, self.waiting = {}, []
        for question in questions:
            question.answered(None, _NO_RESPONSE)
        self.cancel()


@attrs.frozen
class _Stream:
    """An open `subscriptions/listen`."""

    call: InFlightRequest
    methods: frozenset[str]
    uris: tuple[str, ...]


class ModernClient(ConnectionMode):
    """Translates for a modern client of a legacy server.

    Requests lose the modern members of `_meta`; results get the members that revision 2026-07-28
    requires. A request of the server during a call becomes the result of that call
    (`input_required`); the client's retry with its answer waits for the result of the same call.
    """

    def __init__(self, connection: McpConnection, initialize_result: bytes) -> None:
        super().__init__(connection)
        self._initialize_result = initialize_result
        result = members_or_empty(initialize_result)
        self._server_info = result.get("serverInfo", b"{}")
        self._has = decode_value(result.get("capabilities", b"{}"), type=dict[str, Any])
        known = {"supportedVersions": _encode([MODERN_VERSION])}
        known |= {name: result[name] for name in result.keys() & {"capabilities", "instructions"}}
        self.discover_result = self._as_modern(_DISCOVER, join_members(known))
        self._level: str | None = None
        self._running: list[_Running] = []
        self._suspended: BoundedDict[str, _Running] = BoundedDict(_MAX_SUSPENDED)
        self._streams: list[_Stream] = []

    def request(self, call: InFlightRequest, method: str, params: Payload | None) -> None:
        members = members_or_empty(params or b"{}")
        match method:
            case "server/discover":
                self.connection.reply(call, self.discover_result, None)
            case "initialize":  # the client did not wait for the answer to `server/discover`
                self.connection.mode = SameRevision(self.connection)
                self.connection.reply(call, self._initialize_result, None)
            case "subscriptions/listen":
                self._listen(call, members)
            case _ if "requestState" in members and method in INPUT_REQUIRED_METHODS:
                self._retry(call, members)
            case _:
                self._send(call, method, members)

    def notification(self, method: str, params: Payload | None) -> None:
        """Drop the notification: a modern client has none but cancellations."""

    def server_request(
        self, method: str, params: Payload | None, answered: ResponseCallback
    ) -> Cancel:
        question = _Question(method, None if params is None else bytes(params), answered)
        if method == "ping":
            answered(b"{}", None)
        elif running := self._asking():
            running.waiting.append(question)
            running.changed.set()
        else:
            text = "A client of 2026-07-28 can be asked only while it waits for a request"
            answered(None, encode_error(METHOD_NOT_FOUND, text, method))

        def withdraw() -> None:
            question.is_withdrawn = True

        return withdraw

    def _asking(self) -> _Running | None:
        """The request during which the server asks: the newest that may be answered so."""
        able = (each for each in reversed(self._running) if each.method in INPUT_REQUIRED_METHODS)
        return next(able, None)

    def server_notification(
        self, method: str, params: Payload | None, owner: InFlightRequest | None
    ) -> None:
        if method in _CHANGES:
            uri = member_at(params or b"{}", "uri")
            for stream in self._streams:
                if method in stream.methods or (uri and decode_value(uri) in stream.uris):
                    named = _with_subscription(params or b"{}", stream.call)
                    self.connection.consumer.notify(method, named, stream.call)
        elif method != "notifications/message" or self._level is not None:
            self.connection.consumer.notify(method, params, owner)

    def closed(self) -> None:
        self._streams.clear()
        for running in list(self._running):
            running.give_up()

    # -- requests and questions --------------------------------------------------------------------

    def _send(self, call: InFlightRequest, method: str, members: dict[str, bytes]) -> None:
        meta = members_or_empty(members.pop("_meta", b"{}"))
        level = decode_value(meta.get(_LEVEL_KEY, b"null"))
        if level is not None and level != self._level and "logging" in self._has:
            self._level = level
            self.connection.send_own("logging/setLevel", _encode({"level": level}))
        kept = {name: value for name, value in meta.items() if not name.startswith(_RESERVED)}
        if kept:
            members["_meta"] = join_members(kept)
        running = _Running(method)
        self._running.append(running)

        def answered(result: bytes | None, error: bytes | None) -> None:
            self._running.remove(running)
            running.outcome = result, error
            running.changed.set()

        provider = self.connection.provider
        running.cancel = provider.request(call, method, join_members(members), answered)
        self.connection.start(call, self._outcome, running)

    async def _outcome(self, running: _Running) -> bytes:
        """The server's result, or one that asks its questions."""
        try:
            while running.outcome is None:
                if any(not each.is_withdrawn for each in running.waiting):
                    return self._input_required(running)
                running.changed = trio.Event()
                await running.changed.wait()
        except trio.Cancelled:
            running.give_up()
            raise
        result, error = running.outcome
        if result is None:
            raise error_to_exception(error or b"{}")
        return self._as_modern(running.method, result)

    def _input_required(self, running: _Running) -> bytes:
        waiting, running.waiting = running.waiting, []
        asked = (each for each in waiting if not each.is_withdrawn)
        running.asked = {f"{index}": each for index, each in enumerate(asked)}
        requests = {}
        for key, each in running.asked.items():
            params = {} if each.params is None else {"params": each.params}
            requests[key] = join_members({"method": _encode(each.method), **params})
        state = secrets.token_urlsafe(16)
        if (dropped := self._suspended.add(state, running)) is not None:
            dropped[1].give_up()
        return join_members(
            {
                "resultType": b'"input_required"',
                "inputRequests": join_members(requests),
                "requestState": _encode(state),
            }
        )

    def _retry(self, call: InFlightRequest, members: Mapping[str, bytes]) -> None:
        running = self._suspended.pop(str(decode_value(members["requestState"])), None)
        if running is None:
            raise RequestError(INVALID_PARAMS, "Unknown or used requestState")
        responses = members_or_empty(members.get("inputResponses", b"{}"))
        asked, running.asked = running.asked, {}
        for key, question in asked.items():
            response = responses.get(key)
            question.answered(response, _NO_RESPONSE if response is None else None)
        self.connection.start(call, self._outcome, running)

    # -- change notifications ----------------------------------------------------------------------

    def _listen(self, call: InFlightRequest, members: Mapping[str, bytes]) -> None:
        wanted = decode_value(members.get("notifications", b"{}"), type=dict[str, Any])
        kinds = [kind for kind in _LISTED_KINDS if wanted.get(f"{kind}ListChanged")]
        uris = tuple(str(uri) for uri in wanted.get("resourceSubscriptions") or () if uri)
        _check_uris([*uris, *(uri for stream in self._streams for uri in stream.uris)])
        methods = frozenset(f"notifications/{kind}/list_changed" for kind in kinds)
        self._streams.append(stream := _Stream(call, methods, uris))
        for uri in uris:
            self.connection.send_own("resources/subscribe", _encode({"uri": uri}))
        honored: dict[str, Any] = {f"{kind}ListChanged": True for kind in kinds}
        if uris:
            honored["resourceSubscriptions"] = uris
        params = {"notifications": honored, "_meta": {_SUBSCRIPTION_KEY: call.source_id}}
        self.connection.consumer.notify(_ACKNOWLEDGED, _encode(params), call)
        self.connection.start(call, self._hold, stream)

    async def _hold(self, stream: _Stream) -> None:
        """Keep the stream until the client cancels its request."""
        try:
            await trio.sleep_forever()
        finally:
            if not self.connection.closed:
                self._streams.remove(stream)
                others = {uri for other in self._streams for uri in other.uris}
                for uri in set(stream.uris) - others:
                    self.connection.send_own("resources/unsubscribe", _encode({"uri": uri}))

    def _as_modern(self, method: str, result: bytes) -> bytes:
        defaults = {"resultType": b'"complete"'}
        if method in CACHEABLE_METHODS:
            defaults |= {"ttlMs": b"0", "cacheScope": b'"private"'}
        members = members_or_empty(result)
        meta = {_SERVER_KEY: self._server_info, **members_or_empty(members.pop("_meta", b"{}"))}
        return join_members({**defaults, **members, "_meta": join_members(meta)})


# --------------------------------------------------------------------------------------------------


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
