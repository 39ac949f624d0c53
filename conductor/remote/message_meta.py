"""What Streamable HTTP must know of a message to send it: its kind, its method, its session. Pure.

The session goes into a header (RFD streamable HTTP, identity model) only where it is the
`sessionId` of the message's own params: servers compare the two. An answer goes to the session
whose request it answers.
"""

from __future__ import annotations

from collections import Counter
from typing import Final, Literal

import attrs
import msgspec

from conductor.acp import SESSION_END_METHODS, SESSION_SETUP_METHODS, session_id_of
from conductor.jsonrpc.codec import DECODE_ERRORS, decode_message, object_members
from conductor.jsonrpc.messages import encode_id

__all__ = [
    "MessageMeta",
    "SessionTracker",
    "connection_id_of",
    "read_meta",
]

INITIALIZE_METHODS: Final = frozenset({"initialize", "proxy/initialize", "_proxy/initialize"})

MessageKind = Literal["request", "notification", "response", "other"]


class _RawMessage(msgspec.Struct, gc=False):
    id: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    method: str | msgspec.UnsetType = msgspec.UNSET
    params: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    result: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET


_decode: Final = msgspec.json.Decoder(_RawMessage).decode
_decode_text: Final = msgspec.json.Decoder(str | None).decode


@attrs.frozen
class MessageMeta:
    """One message, read as far as its carrier needs. What cannot be read is of the kind "other"."""

    line: bytes
    kind: MessageKind = "other"
    id: bytes = b""
    method: str = ""
    session: str | None = None
    """Of its params; of its result, where it is an answer."""
    failed: bool = False
    """It is an answer without a result."""

    @property
    def initializes(self) -> bool:
        return self.kind == "request" and self.method in INITIALIZE_METHODS


def read_meta(line: bytes) -> MessageMeta:
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
    """The connection's id as the answer to `initialize` has it, for servers without the header."""
    message = _read(body)
    if message is None or message.result is msgspec.UNSET:
        return None
    try:
        id: str | None = _decode_text(object_members(message.result).get("connectionId", b"null"))
    except (ValueError, *DECODE_ERRORS):
        return None
    return id


@attrs.frozen
class _OpenRequest:
    """An open request of ours."""

    method: str
    session: str | None


@attrs.define
class SessionTracker:
    """Which session a message belongs to, where its own text does not say so; which sessions have
    a stream."""

    _of_theirs: dict[bytes, str] = attrs.field(factory=dict, init=False)
    """SessionTracker of the server's requests that are open, by id."""
    _of_ours: dict[bytes, _OpenRequest] = attrs.field(factory=dict, init=False)
    """Our open requests that name a session or set one up, by id."""
    _open: Counter[str] = attrs.field(factory=Counter, init=False)
    """How many requests of ours are open, by session."""
    _ended: set[str] = attrs.field(factory=set, init=False)
    """SessionTracker that were closed or deleted, while requests about them are still open."""

    def posts(self, meta: MessageMeta) -> str | None:
        """The session for the header of a message of ours."""
        if meta.kind == "response":
            return self._of_theirs.pop(meta.id, None)
        if meta.kind == "request" and (
            meta.session is not None or meta.method in SESSION_SETUP_METHODS
        ):
            self._of_ours[meta.id] = _OpenRequest(meta.method, meta.session)
        if meta.kind == "request" and meta.session is not None:
            self._open[meta.session] += 1
            if meta.method in SESSION_SETUP_METHODS:
                self._ended.discard(meta.session)
        return meta.session

    def record_received(self, meta: MessageMeta) -> str | None:
        """A session that exists now, by what the server says."""
        if meta.kind == "request" and meta.session is not None:
            self._of_theirs[meta.id] = meta.session
        if meta.kind != "response" or (asked := self._of_ours.pop(meta.id, None)) is None:
            return None
        if asked.session is not None:
            self._answered(asked.session)
            if asked.method in SESSION_END_METHODS and not meta.failed:
                self._ended.add(asked.session)
        return (meta.session or asked.session) if asked.method in SESSION_SETUP_METHODS else None

    def take_ended(self) -> list[str]:
        """SessionTracker of which nothing more will come: closed or deleted, and every request
        about them is answered. Each is told of once."""
        done = [session for session in self._ended if session not in self._open]
        self._ended.difference_update(done)
        return done

    def may_end(self, session: str) -> bool:
        """Whether the server may end this session's stream."""
        asked = self._of_ours.values()
        ending = any(
            each.session == session and each.method in SESSION_END_METHODS for each in asked
        )
        return ending or session in self._ended

    def _answered(self, session: str) -> None:
        self._open[session] -= 1
        if not self._open[session]:
            del self._open[session]


def _read(line: bytes) -> _RawMessage | None:
    try:
        return _decode(line)
    except DECODE_ERRORS:
        message = decode_message(line)  # it takes lone surrogates, too
    if message is None:
        return None
    id = message.id if message.id is msgspec.UNSET else msgspec.Raw(encode_id(message.id))
    return _RawMessage(id, message.method, message.params, message.result)


def _session_of(payload: msgspec.Raw | msgspec.UnsetType) -> str | None:
    return None if payload is msgspec.UNSET else session_id_of(payload)
