"""Properties of a message that Streamable HTTP needs: kind, method, session. Pure.

The session header (RFD streamable HTTP, identity model) is sent only if the params have the same
`sessionId`: servers compare the two. A response belongs to the session of its request.
"""

from __future__ import annotations

from collections import Counter
from typing import Final, Literal

import attrs
import msgspec

from conductor.acp import SESSION_END_METHODS, SESSION_SETUP_METHODS, session_id_of
from conductor.jsonrpc.codec import DECODE_ERRORS, decode_message
from conductor.jsonrpc.json_object import member_at
from conductor.jsonrpc.messages import encode_id

__all__ = [
    "MessageMeta",
    "SessionTracker",
    "connection_id_of",
    "read_meta",
]

INITIALIZE_METHODS: Final = frozenset({"initialize", "proxy/initialize", "_proxy/initialize"})

MessageKind = Literal["request", "notification", "response", "other"]


class _MessageMembers(msgspec.Struct, gc=False):
    id: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    method: str | msgspec.UnsetType = msgspec.UNSET
    params: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    result: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET


_decode: Final = msgspec.json.Decoder(_MessageMembers).decode
_decode_text: Final = msgspec.json.Decoder(str | None).decode


@attrs.frozen
class MessageMeta:
    """A message, decoded as far as the transport needs. Invalid messages have the kind "other"."""

    line: bytes
    kind: MessageKind = "other"
    id: bytes = b""
    method: str = ""
    session: str | None = None
    """`sessionId` of the params, or of the result of a response."""
    failed: bool = False
    """It is a response without a result."""

    @property
    def initializes(self) -> bool:
        return self.kind == "request" and self.method in INITIALIZE_METHODS


def read_meta(line: bytes) -> MessageMeta:
    """Decode the properties of a message. Never raises."""
    message = _read(line)
    if message is None:
        return MessageMeta(line)
    id = b"" if message.id is msgspec.UNSET else bytes(message.id)
    if message.method is msgspec.UNSET:
        failed = message.result is msgspec.UNSET
        session = _session_of(message.result)
        return MessageMeta(line, "response" if id else "other", id, session=session, failed=failed)
    kind: MessageKind = "request" if id else "notification"
    return MessageMeta(line, kind, id, message.method, _session_of(message.params))


def connection_id_of(body: bytes) -> str | None:
    """`connectionId` of the result of `initialize`, for servers that send no header."""
    message = _read(body)
    if message is None or message.result is msgspec.UNSET:
        return None
    try:
        id: str | None = _decode_text(member_at(message.result, "connectionId") or b"null")
    except DECODE_ERRORS:
        return None
    return id


@attrs.frozen
class _ClientRequest:
    """A client request in flight."""

    method: str
    session: str | None


@attrs.define
class SessionTracker:
    """Sessions of requests in flight: the session of a response, and the end of each session."""

    _server_sessions: dict[bytes, str] = attrs.field(factory=dict, init=False)
    """Session of each server request in flight, by raw id."""
    _client_requests: dict[bytes, _ClientRequest] = attrs.field(factory=dict, init=False)
    """Client requests in flight that name or set up a session, by raw id."""
    _open: Counter[str] = attrs.field(factory=Counter, init=False)
    """Number of client requests in flight, by session."""
    _ended: set[str] = attrs.field(factory=set, init=False)
    """Closed or deleted sessions with requests in flight."""

    def posts(self, meta: MessageMeta) -> str | None:
        """Record an outgoing message; return the session for its header."""
        if meta.kind == "response":
            return self._server_sessions.pop(meta.id, None)
        if meta.kind == "request" and (
            meta.session is not None or meta.method in SESSION_SETUP_METHODS
        ):
            self._client_requests[meta.id] = _ClientRequest(meta.method, meta.session)
        if meta.kind == "request" and meta.session is not None:
            self._open[meta.session] += 1
            if meta.method in SESSION_SETUP_METHODS:
                self._ended.discard(meta.session)
        return meta.session

    def record_received(self, meta: MessageMeta) -> str | None:
        """Record an incoming message; return the session that it sets up, if any."""
        if meta.kind == "request" and meta.session is not None:
            self._server_sessions[meta.id] = meta.session
        if meta.kind != "response" or (asked := self._client_requests.pop(meta.id, None)) is None:
            return None
        if asked.session is not None:
            self._answered(asked.session)
            if asked.method in SESSION_END_METHODS and not meta.failed:
                self._ended.add(asked.session)
        return (meta.session or asked.session) if asked.method in SESSION_SETUP_METHODS else None

    def take_ended(self) -> list[str]:
        """Sessions that have ended: closed or deleted, no request in flight. Each once."""
        done = [session for session in self._ended if session not in self._open]
        self._ended.difference_update(done)
        return done

    def may_end(self, session: str) -> bool:
        """Whether the server may end this session's stream: its end was requested."""
        asked = self._client_requests.values()
        ending = any(
            each.session == session and each.method in SESSION_END_METHODS for each in asked
        )
        return ending or session in self._ended

    def _answered(self, session: str) -> None:
        self._open[session] -= 1
        if not self._open[session]:
            del self._open[session]


def _read(line: bytes) -> _MessageMembers | None:
    try:
        return _decode(line)
    except DECODE_ERRORS:
        message = decode_message(line)  # accepts lone surrogates
    if message is None:
        return None
    id = message.id if message.id is msgspec.UNSET else msgspec.Raw(encode_id(message.id))
    return _MessageMembers(id, message.method, message.params, message.result)


def _session_of(payload: msgspec.Raw | msgspec.UnsetType) -> str | None:
    return None if payload is msgspec.UNSET else session_id_of(payload)
