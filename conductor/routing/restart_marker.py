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

from conductor.jsonrpc.codec import members
from conductor.jsonrpc.messages import Payload

__all__ = [
    "RESTART_MARKER",
    "join_members",
    "params_members",
    "restarted_sessions",
    "with_restart_marker",
]

RESTART_MARKER: Final = "acp-conductor/restart"
"""The member of `_meta` that is the mark."""


def with_restart_marker(params: bytes, sessions: Iterable[str]) -> bytes:
    """The params of an `initialize`, for a proxy that is to be told of these sessions.

    Params so deeply nested that they can only just be read are left as they are.
    """
    try:
        found = params_members(params)
        meta = params_members(bytes(found.get("_meta", b"{}")))
    except RecursionError:
        return params
    meta[RESTART_MARKER] = msgspec.json.encode({"sessions": list(sessions)})
    found["_meta"] = join_members(meta)
    return join_members(found)


def restarted_sessions(params: Payload | None) -> list[str] | None:
    """The sessions that a mark names; `None` in an `initialize` without one."""
    if params is None or _MARKER_BYTES not in (raw := bytes(params)):
        return None
    try:
        marker = params_members(bytes(params_members(raw).get("_meta", b"{}"))).get(RESTART_MARKER)
        return None if marker is None else _decode(marker).sessions
    except (msgspec.MsgspecError, RecursionError):
        return None


def params_members(params: bytes) -> dict[str, Payload]:
    """The members of an object, as they are written; of anything else there are none.

    Raises `RecursionError` where they are nested about as deeply as `codec` lets through.
    """
    try:
        return dict(msgspec.json.decode(params, type=dict[str, msgspec.Raw]))
    except msgspec.ValidationError:
        return {}
    except msgspec.MsgspecError:
        return dict(members(params))  # with lone surrogates, which msgspec refuses


def join_members(found: Mapping[str, Payload]) -> bytes:
    """An object of these members."""
    pairs = (msgspec.json.encode(name) + b":" + bytes(value) for name, value in found.items())
    return b"{" + b",".join(pairs) + b"}"


class _Marker(msgspec.Struct):
    sessions: list[str] = []


_MARKER_BYTES: Final = RESTART_MARKER.encode()
_decode: Final = msgspec.json.Decoder(_Marker).decode
