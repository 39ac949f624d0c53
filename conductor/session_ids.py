"""The session that a message names: the `sessionId` member of params or of a result. Pure.

The one reader of session ids. It reads what `frames` lets through, lone surrogates included, which
msgspec alone refuses. For access control there is `named_session`, which refuses what two readers
could read differently; for routing and records there is `session_of`, which never raises.
"""

from __future__ import annotations

import re
from typing import Final

import msgspec

from conductor.frames import UNUSUAL, member_pairs
from conductor.messages import Payload

__all__ = ["UnreadableSession", "named_session", "session_of"]

_KEY: Final = "sessionId"
_surrogate: Final = re.compile(rb"\\u[dD][89a-fA-F]")


class UnreadableSession(ValueError):
    """It cannot be told for sure which session is named."""


class _HasSession(msgspec.Struct, gc=False):
    sessionId: str


class _MayHaveSession(msgspec.Struct, gc=False):
    sessionId: str | None = None


_decode: Final = msgspec.json.Decoder(_HasSession).decode
_decode_optional: Final = msgspec.json.Decoder(_MayHaveSession).decode
_decode_id: Final = msgspec.json.Decoder(str | None).decode


def session_of(payload: Payload | None) -> str | None:
    """The session that params or a result name, if there is one that can be read."""
    if payload is None:
        return None
    try:
        return _decode(payload).sessionId
    except UNUSUAL:
        if not _surrogate.search(payload):
            return None
    try:
        return named_session(payload)
    except UnreadableSession:
        return None


def named_session(payload: Payload | None) -> str | None:
    """The session that params or a result name; None where they name none.

    Raises `UnreadableSession` where a peer might read another one: the params are no object, the
    member is there twice, or its value is neither a string nor null.
    """
    if payload is None:
        return None
    text = bytes(payload)
    try:
        if text.count(b'"sessionId"') < 2 and b"\\u" not in text:  # no second one, no escaped name
            return _decode_optional(text).sessionId
        values = [value for name, value in member_pairs(text) if name == _KEY]
        if len(values) > 1:
            raise UnreadableSession(f"{_KEY} is there {len(values)} times")
        return _decode_id(values[0]) if values else None
    except UNUSUAL as exc:
        raise UnreadableSession(str(exc)) from None
    except UnreadableSession:
        raise
    except ValueError as exc:
        raise UnreadableSession(str(exc)) from None
