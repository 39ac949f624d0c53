"""How a proxy that is started again learns that it is not the first. Pure.

Its `initialize` is the recorded one, with a mark in `_meta`, which the protocol keeps for such
things: the ids of the sessions that are open, each of which it is told of next. What is in the same
process, or behind it in a nested chain, sees the mark too, since `initialize` travels through all
of it. The successor does not: it is not asked again.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

import msgspec

from conductor.frames import members
from conductor.messages import Payload

__all__ = ["RESTART", "announced_sessions", "from_members", "marked", "members_of"]

RESTART: Final = "acp-conductor/restart"
"""The member of `_meta` that is the mark."""


def marked(params: bytes, sessions: Iterable[str]) -> bytes:
    """The params of an `initialize`, for a proxy that is to be told of these sessions.

    Params so deeply nested that they can only just be read are left as they are.
    """
    try:
        found = members_of(params)
        meta = members_of(bytes(found.get("_meta", b"{}")))
    except RecursionError:
        return params
    meta[RESTART] = msgspec.json.encode({"sessions": list(sessions)})
    found["_meta"] = from_members(meta)
    return from_members(found)


def announced_sessions(params: Payload | None) -> list[str] | None:
    """The sessions that a mark names; `None` in an `initialize` without one."""
    if params is None or _BYTES not in (raw := bytes(params)):
        return None
    try:
        mark = members_of(bytes(members_of(raw).get("_meta", b"{}"))).get(RESTART)
        return None if mark is None else _decode(mark).sessions
    except (msgspec.MsgspecError, RecursionError):
        return None


def members_of(params: bytes) -> dict[str, Payload]:
    """The members of an object, as they are written; of anything else there are none.

    Raises `RecursionError` where they are nested about as deeply as `frames` lets through.
    """
    try:
        return dict(msgspec.json.decode(params, type=dict[str, msgspec.Raw]))
    except msgspec.ValidationError:
        return {}
    except msgspec.MsgspecError:
        return dict(members(params))  # with lone surrogates, which msgspec refuses


def from_members(found: Mapping[str, Payload]) -> bytes:
    """An object of these members."""
    pairs = (msgspec.json.encode(name) + b":" + bytes(value) for name, value in found.items())
    return b"{" + b",".join(pairs) + b"}"


class _Mark(msgspec.Struct):
    sessions: list[str] = []


_BYTES: Final = RESTART.encode()
_decode: Final = msgspec.json.Decoder(_Mark).decode
