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

from conductor.frames import UNUSUAL, members_of, read_message
from conductor.messages import encode_id
from conductor.session_ids import session_of

__all__ = ["SET_UPS", "Letter", "Sessions", "body_with_connection", "read_letter"]

INITIALIZES: Final = frozenset({"initialize", "proxy/initialize", "_proxy/initialize"})
SET_UPS: Final = frozenset({"session/new", "session/load", "session/resume", "session/fork"})
"""Methods after which there is a session that there may not have been before."""
_ENDS: Final = frozenset({"session/close", "session/delete"})

Kind = Literal["request", "notification", "response", "other"]


class _Message(msgspec.Struct, gc=False):
    id: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    method: str | msgspec.UnsetType = msgspec.UNSET
    params: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    result: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET


_decode: Final = msgspec.json.Decoder(_Message).decode
_decode_text: Final = msgspec.json.Decoder(str | None).decode


@attrs.frozen
class Letter:
    """One message, read as far as its carrier needs. What cannot be read is of the kind "other"."""

    line: bytes
    kind: Kind = "other"
    id: bytes = b""
    method: str = ""
    session: str | None = None
    """Of its params; of its result, where it is an answer."""
    failed: bool = False
    """It is an answer without a result."""

    @property
    def initializes(self) -> bool:
        return self.kind == "request" and self.method in INITIALIZES


def read_letter(line: bytes) -> Letter:
    message = _read(line)
    if message is None:
        return Letter(line)
    id = b"" if message.id is msgspec.UNSET else bytes(message.id)
    if message.method is msgspec.UNSET:
        failed = message.result is msgspec.UNSET
        session = _session_of(message.result)
        return Letter(line, "response" if id else "other", id, session=session, failed=failed)
    kind: Kind = "request" if id else "notification"
    return Letter(line, kind, id, message.method, _session_of(message.params))


def body_with_connection(body: bytes) -> str | None:
    """The connection's id as the answer to `initialize` has it, for servers without the header."""
    message = _read(body)
    if message is None or message.result is msgspec.UNSET:
        return None
    try:
        id: str | None = _decode_text(members_of(message.result).get("connectionId", b"null"))
    except (ValueError, *UNUSUAL):
        return None
    return id


@attrs.frozen
class _Asked:
    """An open request of ours."""

    method: str
    session: str | None


@attrs.define
class Sessions:
    """Which session a message belongs to, where its own text does not say so; which sessions have
    a stream."""

    _of_theirs: dict[bytes, str] = attrs.field(factory=dict, init=False)
    """Sessions of the server's requests that are open, by id."""
    _of_ours: dict[bytes, _Asked] = attrs.field(factory=dict, init=False)
    """Our open requests that name a session or set one up, by id."""
    _open: Counter[str] = attrs.field(factory=Counter, init=False)
    """How many requests of ours are open, by session."""
    _ended: set[str] = attrs.field(factory=set, init=False)
    """Sessions that were closed or deleted, while requests about them are still open."""

    def posts(self, letter: Letter) -> str | None:
        """The session for the header of a message of ours."""
        if letter.kind == "response":
            return self._of_theirs.pop(letter.id, None)
        if letter.kind == "request" and (letter.session is not None or letter.method in SET_UPS):
            self._of_ours[letter.id] = _Asked(letter.method, letter.session)
        if letter.kind == "request" and letter.session is not None:
            self._open[letter.session] += 1
            if letter.method in SET_UPS:
                self._ended.discard(letter.session)
        return letter.session

    def arrives(self, letter: Letter) -> str | None:
        """A session that exists now, by what the server says."""
        if letter.kind == "request" and letter.session is not None:
            self._of_theirs[letter.id] = letter.session
        if letter.kind != "response" or (asked := self._of_ours.pop(letter.id, None)) is None:
            return None
        if asked.session is not None:
            self._answered(asked.session)
            if asked.method in _ENDS and not letter.failed:
                self._ended.add(asked.session)
        return (letter.session or asked.session) if asked.method in SET_UPS else None

    def take_ended(self) -> list[str]:
        """Sessions of which nothing more will come: closed or deleted, and every request about
        them is answered. Each is told of once."""
        done = [session for session in self._ended if session not in self._open]
        self._ended.difference_update(done)
        return done

    def may_end(self, session: str) -> bool:
        """Whether the server may end this session's stream."""
        asked = self._of_ours.values()
        ending = any(each.session == session and each.method in _ENDS for each in asked)
        return ending or session in self._ended

    def _answered(self, session: str) -> None:
        self._open[session] -= 1
        if not self._open[session]:
            del self._open[session]


def _read(line: bytes) -> _Message | None:
    try:
        return _decode(line)
    except UNUSUAL:
        message = read_message(line)  # it takes lone surrogates, too
    if message is None:
        return None
    id = message.id if message.id is msgspec.UNSET else msgspec.Raw(encode_id(message.id))
    return _Message(id, message.method, message.params, message.result)


def _session_of(payload: msgspec.Raw | msgspec.UnsetType) -> str | None:
    return None if payload is msgspec.UNSET else session_of(payload)
